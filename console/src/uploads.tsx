// Uploads: small files at once, large ones in parts, a few at a time; they continue while the user is on other pages.
import { Component, h } from "preact";
import { aborted, all, ask, escape, path, query, send, text, xml } from "./api";
import { Button, bytes, told } from "./ui";

const PART_BYTES = 16 * 1024 * 1024;
const PARTS_MAX = 10000;
const PARTS_AT_ONCE = 3;
const FILES_AT_ONCE = 2;

export interface Upload {
	id: number;
	bucket: string;
	key: string;
	file: File;
	sent: number;
	state: "waits" | "runs" | "done" | "failed" | "cancelled";
	problem?: string;
	/** How many parts an earlier upload had left. */
	kept?: number;
	/** The page went away: the parts stay. */
	left?: boolean;
	abort: AbortController;
	onDone: () => void;
}

const uploads: Upload[] = [];
let last = 0;
let changed: () => void = () => undefined;

async function whole(upload: Upload): Promise<void> {
	await send(path(upload.bucket, upload.key), upload.file, (sent) => {
		upload.sent = sent;
		changed();
	}, upload.abort.signal, { "Content-Type": upload.file.type || "application/octet-stream" });
}

/* ---- What an earlier upload of the same file left. ---- */

const TABLE = Array.from({ length: 256 }, (_, value) => {
	for (let bit = 0; bit < 8; bit++) value = (value >>> 1) ^ (value & 1 ? 0xedb88320 : 0);
	return value >>> 0;
});

/** In base64, as the server tells it of a part. */
async function crc32(part: Blob): Promise<string> {
	let crc = ~0;
	for (let at = 0; at < part.size; at += PART_BYTES) {
		const data = new Uint8Array(await part.slice(at, at + PART_BYTES).arrayBuffer());
		for (let i = 0; i < data.length; i++) crc = (crc >>> 8) ^ TABLE[(crc ^ data[i]) & 255];
	}
	crc = ~crc >>> 0;
	return btoa(String.fromCharCode(crc >>> 24, (crc >>> 16) & 255, (crc >>> 8) & 255, crc & 255));
}

interface Begun {
	id: string;
	/** ETags of the parts that are there and have the file's bytes, by number from 0. */
	tags: Map<number, string>;
}

async function partsOf(where: string, uploadId: string): Promise<Element[]> {
	const found: Element[] = [];
	let marker = "0";
	for (;;) {
		const root = await xml(where + query({ uploadId, "part-number-marker": marker }));
		found.push(...all(root, "Part"));
		if (text(root, "IsTruncated") !== "true") return found;
		marker = text(root, "NextPartNumberMarker");
	}
}

/** The newest unfinished upload to the key whose parts are the file's; undefined: none. A user who may not list begins anew. */
async function left(upload: Upload, size: number): Promise<Begun | undefined> {
	const where = path(upload.bucket, upload.key);
	try {
		const root = await xml(path(upload.bucket) + query({ uploads: "", prefix: upload.key }));
		for (const each of all(root, "Upload").filter((one) => text(one, "Key") === upload.key).reverse()) {
			const begun: Begun = { id: text(each, "UploadId"), tags: new Map() };
			for (const part of await partsOf(where, begun.id)) {
				const at = Number(text(part, "PartNumber")) - 1;
				const bytes = upload.file.slice(at * size, (at + 1) * size);
				if (upload.abort.signal.aborted) return begun;
				if (bytes.size && bytes.size === Number(text(part, "Size")) && text(part, "ChecksumCRC32") === (await crc32(bytes))) begun.tags.set(at, text(part, "ETag"));
			}
			if (begun.tags.size) return begun;
		}
	} catch {
		// Not told: then a new one.
	}
	return undefined;
}

async function begunNow(upload: Upload, where: string): Promise<Begun> {
	const headers = { "Content-Type": upload.file.type || "application/octet-stream", "x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": "FULL_OBJECT" };
	return { id: text(await xml(where + "?uploads", { method: "POST", headers }), "UploadId"), tags: new Map() };
}

async function parts(upload: Upload): Promise<void> {
	const size = Math.max(PART_BYTES, Math.ceil(upload.file.size / PARTS_MAX));
	const total = Math.ceil(upload.file.size / size);
	const where = path(upload.bucket, upload.key);
	const found = await left(upload, size);
	if (!found && upload.abort.signal.aborted) throw aborted();
	const begun = found ?? (await begunNow(upload, where));
	const uploadId = begun.id;
	const tags: string[] = new Array<string>(total);
	const sent: number[] = new Array<number>(total).fill(0);
	let next = 0;
	begun.tags.forEach((tag, part) => {
		tags[part] = tag;
		sent[part] = Math.min(size, upload.file.size - part * size);
	});
	upload.kept = begun.tags.size;
	const work = async (): Promise<void> => {
		while (next < total) {
			const part = next++;
			if (tags[part]) continue;
			const answer = await send(where + query({ partNumber: part + 1, uploadId }), upload.file.slice(part * size, (part + 1) * size), (done) => {
				sent[part] = done;
				upload.sent = sent.reduce((sum, each) => sum + each, 0);
				changed();
			}, upload.abort.signal);
			tags[part] = answer.getResponseHeader("ETag") ?? "";
		}
	};
	try {
		await Promise.all(Array.from({ length: PARTS_AT_ONCE }, work));
		if (upload.abort.signal.aborted) throw aborted();
		const list = tags.map((tag, at) => `<Part><PartNumber>${at + 1}</PartNumber><ETag>${escape(tag)}</ETag></Part>`).join("");
		const answer = await xml(where + query({ uploadId }), { method: "POST", body: `<CompleteMultipartUpload>${list}</CompleteMultipartUpload>` });
		if (answer.localName === "Error") throw new Error(text(answer, "Message"));
	} catch (error) {
		// A cancelled upload is not wanted any more. After a failure the parts stay: the same file, uploaded again, goes on from there.
		const cancelled = upload.abort.signal.aborted && !upload.left;
		upload.abort.abort();
		if (cancelled) await ask(where + query({ uploadId }), { method: "DELETE" }).catch(() => undefined);
		throw error;
	}
}

async function run(upload: Upload): Promise<void> {
	upload.state = "runs";
	changed();
	try {
		await (upload.file.size <= PART_BYTES ? whole(upload) : parts(upload));
		upload.state = "done";
		upload.sent = upload.file.size;
		upload.onDone();
	} catch (error) {
		upload.state = (error as Error).name === "AbortError" ? "cancelled" : "failed";
		upload.problem = told(error);
	}
	changed();
	begin();
}

function begin(): void {
	for (const each of uploads)
		if (each.state === "waits" && uploads.filter((other) => other.state === "runs").length < FILES_AT_ONCE) void run(each);
}

/** Adds a file; onDone: called when it is stored. */
export function upload(bucket: string, key: string, file: File, onDone: () => void): void {
	uploads.push({ id: ++last, bucket, key, file, sent: 0, state: "waits", abort: new AbortController(), onDone });
	changed();
	begin();
}

function cancel(upload: Upload): void {
	if (upload.state === "waits") upload.state = "cancelled";
	upload.abort.abort();
	changed();
}

function again(upload: Upload): void {
	Object.assign(upload, { state: "waits", problem: undefined, sent: 0, abort: new AbortController() });
	changed();
	begin();
}

const WORDS = { waits: "waits", runs: "", done: "done", failed: "failed", cancelled: "cancelled" };

/** The list of uploads at the page's foot. */
export class UploadList extends Component<{}, { round: number }> {
	state = { round: 0 };

	componentDidMount(): void {
		changed = () => this.setState({ round: this.state.round + 1 });
		// A user who leaves the page has seen that all uploads are done.
		addEventListener("hashchange", () => { if (uploads.every((each) => each.state === "done")) this.clear(); });
		addEventListener("beforeunload", (event) => {
			if (uploads.some((each) => each.state === "runs")) event.preventDefault();
		});
	}

	componentWillUnmount(): void {
		for (const each of uploads.splice(0)) {
			each.left = true;
			each.abort.abort();
		}
		changed = () => undefined;
	}

	private clear(): void {
		for (let at = uploads.length - 1; at >= 0; at--)
			if (!["waits", "runs"].includes(uploads[at].state)) uploads.splice(at, 1);
		changed();
	}

	private row(each: Upload): JSX.Element {
		const share = each.file.size ? Math.floor((100 * each.sent) / each.file.size) : 100;
		const name = each.key.split("/").pop() ?? each.key;
		const goes = each.state === "runs" || each.state === "waits";
		return (
			<li key={String(each.id)} class={each.state}>
				<span class="name" title={`${each.bucket}/${each.key}`}>{name}</span>
				<span class="state">{each.state === "runs" ? `${share} % of ${bytes(each.file.size)}${each.kept ? ", resumed" : ""}` : WORDS[each.state]}</span>
				{goes ? <Button label={`Cancel ${name}`} icon="close" kind="quiet" bare onClick={() => cancel(each)} /> : null}
				{goes ? <progress {...{ max: 100 }} value={String(share)} aria-label={name} /> : null}
				{each.state === "failed" ? <p class="problem">{each.problem} {each.file.size > PART_BYTES ? "The same file, uploaded again, goes on from there." : ""}</p> : null}
				{each.state === "failed" ? <Button label={`Try ${name} again`} kind="quiet" onClick={() => again(each)} /> : null}
			</li>
		);
	}

	render(): JSX.Element {
		if (!uploads.length) return <div class="uploads none" />;
		const going = uploads.filter((each) => each.state === "runs" || each.state === "waits").length;
		return (
			<section class="uploads" aria-label="Uploads">
				<header>
					<h2><span role="status">{going ? `Uploading ${going} of ${uploads.length}` : `Uploads: ${uploads.length}`}</span></h2>
					{going < uploads.length ? <Button label="Clear" kind="quiet" onClick={() => this.clear()} /> : null}
				</header>
				<ul>{uploads.map((each) => this.row(each))}</ul>
			</section>
		);
	}
}

/** The files of a drop, those in its folders too, each with its path. */
export async function dropped(transfer: DataTransfer): Promise<{ name: string; file: File }[]> {
	const entries = Array.from(transfer.items).map((item) => item.webkitGetAsEntry()).filter((entry): entry is FileSystemEntry => !!entry);
	const found: { name: string; file: File }[] = [];
	const walk = async (entry: FileSystemEntry): Promise<void> => {
		if (entry.isFile) {
			const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
			found.push({ name: entry.fullPath.replace(/^\//, ""), file });
			return;
		}
		const reader = (entry as FileSystemDirectoryEntry).createReader();
		for (;;) {
			const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
			if (!some.length) return;
			for (const each of some) await walk(each);
		}
	};
	for (const entry of entries) await walk(entry);
	// Dropped data without a file-system entry is taken as plain files.
	return entries.length ? found : Array.from(transfer.files).map((file) => ({ name: file.name, file }));
}

/** Unfinished uploads of a bucket. */
export async function unfinished(bucket: string): Promise<{ key: string; id: string; started: string }[]> {
	const root = await xml(path(bucket) + "?uploads");
	return all(root, "Upload").map((each) => ({ key: text(each, "Key"), id: text(each, "UploadId"), started: text(each, "Initiated") }));
}
