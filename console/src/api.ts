// The page's only way to the server: S3, IAM and the admin API, through the session that the cookie names.

/** An unsuccessful answer, with the server's message. */
export class Failure extends Error {
	constructor(readonly status: number, readonly code: string, message: string) {
		super(message);
	}
}

export interface Session {
	user: string;
	arn: string;
	account: string;
	expires: number;
	idleSeconds: number;
	version: string;
}

export interface Ask {
	method?: string;
	body?: BodyInit;
	headers?: Record<string, string>;
	/** The page polls by itself, without an action of the user. */
	poll?: boolean;
	signal?: AbortSignal;
}

let ended: () => void = () => undefined;
let active: () => void = () => undefined;

/** Sets the handlers of the session's end and of the user's actions. */
export function onSession(handlers: { ended: () => void; active: () => void }): void {
	ended = handlers.ended;
	active = handlers.active;
}

/* ---- XML. ---- */

interface Trusted {
	createPolicy(name: string, rules: { createHTML: (text: string) => string }): { createHTML(text: string): string };
}
// The parser makes a document of data, which is never shown as a page.
const trusted = (window as unknown as { trustedTypes?: Trusted }).trustedTypes?.createPolicy("xml", { createHTML: (text) => text });

export function parseXml(text: string): Element | undefined {
	const document = new DOMParser().parseFromString(trusted ? trusted.createHTML(text) : text, "text/xml");
	return document.getElementsByTagName("parsererror").length ? undefined : document.documentElement;
}

/** The children of that name. */
export function all(element: Element | undefined, name: string): Element[] {
	return element ? Array.from(element.children).filter((child) => child.localName === name) : [];
}

/** The first of them, down a path: "a/b". */
export function first(element: Element | undefined, path: string): Element | undefined {
	return path.split("/").reduce<Element | undefined>((at, name) => all(at, name)[0], element);
}

export function text(element: Element | undefined, path: string): string {
	return first(element, path)?.textContent ?? "";
}

export function escape(value: string): string {
	return value.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

/* ---- Requests. ---- */

function failure(status: number, body: string): Failure {
	const xml = body.startsWith("<") ? parseXml(body) : undefined;
	const error = xml && (xml.localName === "Error" ? xml : first(xml, "Error"));
	if (error) return new Failure(status, text(error, "Code"), text(error, "Message"));
	try {
		const json = JSON.parse(body) as { error?: string; code?: string };
		if (json.error) return new Failure(status, json.code ?? "", json.error);
	} catch {
		// Neither of the two.
	}
	return new Failure(status, "", status ? `The server answered ${status}.` : "The server cannot be reached.");
}

const OVER = ["InvalidToken", "ExpiredToken"];

export async function ask(path: string, options: Ask = {}): Promise<Response> {
	const headers: Record<string, string> = { "X-Console": "1", ...options.headers };
	if (options.poll) headers["X-Console-Poll"] = "1";
	else active();
	let answer: Response;
	try {
		answer = await fetch(path, { method: options.method ?? "GET", headers, body: options.body, signal: options.signal, cache: "no-store" });
	} catch (error) {
		if ((error as Error).name === "AbortError") throw error;
		throw failure(0, "");
	}
	if (answer.ok) return answer;
	const failed = failure(answer.status, options.method === "HEAD" ? "" : await answer.text());
	if (path !== "/api/sign-in" && (answer.status === 401 || OVER.includes(failed.code))) ended();
	throw failed;
}

export function aborted(): DOMException {
	return new DOMException("", "AbortError");
}

/** For transfers that show their progress. */
export function send(path: string, body: Blob, progress: (bytes: number) => void, signal: AbortSignal, headers: Record<string, string> = {}): Promise<XMLHttpRequest> {
	return new Promise((resolve, reject) => {
		const request = new XMLHttpRequest();
		request.open("PUT", path);
		for (const name of Object.keys(headers)) request.setRequestHeader(name, headers[name]);
		request.setRequestHeader("X-Console", "1");
		request.upload.onprogress = (event) => progress(event.loaded);
		request.onload = () => (request.status < 300 ? resolve(request) : reject(failure(request.status, request.responseText)));
		request.onerror = () => reject(failure(0, ""));
		request.onabort = () => reject(aborted());
		// A signal that was given already tells it no more.
		if (signal.aborted) return reject(aborted());
		signal.addEventListener("abort", () => request.abort());
		active();
		request.send(body);
	});
}

export async function json<T>(path: string, options?: Ask): Promise<T> {
	return (await (await ask(path, options)).json()) as T;
}

export async function xml(path: string, options?: Ask): Promise<Element> {
	const root = parseXml(await (await ask(path, options)).text());
	if (!root) throw new Failure(0, "", "The server's answer is no XML.");
	return root;
}

/** A configuration that may not be there. */
export async function optional<T>(promise: Promise<T>): Promise<T | undefined> {
	try {
		return await promise;
	} catch (error) {
		if (error instanceof Failure && error.status === 404) return undefined;
		throw error;
	}
}

export function post<T>(path: string, value: unknown): Promise<T> {
	return json<T>(path, { method: "POST", body: JSON.stringify(value) });
}

/* ---- S3. ---- */

/** The path of a bucket or an object. Throws for a key that is not reachable(). */
export function path(bucket: string, key = ""): string {
	if (!reachable(key)) throw new Failure(0, "", UNREACHABLE);
	const rest = key.split("/").map(encodeURIComponent).join("/");
	return `/s3/${encodeURIComponent(bucket)}${key ? "/" + rest : ""}`;
}

export const UNREACHABLE = "No browser can ask for a name with “.” or “..” between its slashes.";

/** A browser makes another path of a name with "." or ".." between its slashes. */
export function reachable(key: string): boolean {
	return !key.split("/").some((part) => part === "." || part === "..");
}

export function query(parameters: Record<string, string | number | undefined>): string {
	const parts = Object.keys(parameters).filter((name) => parameters[name] !== undefined)
		.map((name) => (parameters[name] === "" ? name : `${name}=${encodeURIComponent(String(parameters[name]))}`));
	return parts.length ? "?" + parts.join("&") : "";
}

export interface Bucket {
	name: string;
	created: string;
}

export async function listBuckets(): Promise<Bucket[]> {
	const root = await xml("/s3/");
	return all(first(root, "Buckets"), "Bucket").map((each) => ({ name: text(each, "Name"), created: text(each, "CreationDate") }));
}

export interface Item {
	key: string;
	size: number;
	modified: string;
	etag: string;
	storage: string;
	version?: string;
	latest?: boolean;
	marker?: boolean;
}

export interface Listing {
	prefixes: string[];
	items: Item[];
	/** The parameters of the next page; none: this is the last one. */
	next?: Record<string, string>;
}

export interface ListAsk {
	bucket: string;
	prefix: string;
	versions: boolean;
	flat?: boolean;
	next?: Record<string, string>;
	count?: number;
}

const decode = (value: string): string => decodeURIComponent(value.replace(/\+/g, "%20"));

export async function list(wanted: ListAsk): Promise<Listing> {
	const root = await xml(path(wanted.bucket) + query({
		...(wanted.versions ? { versions: "" } : { "list-type": 2 }), prefix: wanted.prefix || undefined, delimiter: wanted.flat ? undefined : "/",
		"encoding-type": "url", "max-keys": wanted.count ?? 200, ...wanted.next,
	}));
	const rows = Array.from(root.children).filter((each) => ["Contents", "Version", "DeleteMarker"].includes(each.localName));
	const items = rows.map((each): Item => ({
		key: decode(text(each, "Key")), size: Number(text(each, "Size")), modified: text(each, "LastModified"), etag: text(each, "ETag"),
		storage: text(each, "StorageClass"), version: text(each, "VersionId") || undefined, latest: text(each, "IsLatest") === "true",
		marker: each.localName === "DeleteMarker",
	}));
	let next: Record<string, string> | undefined;
	if (text(root, "IsTruncated") === "true")
		next = wanted.versions ? { "key-marker": decode(text(root, "NextKeyMarker")), "version-id-marker": decode(text(root, "NextVersionIdMarker")) }
			: { "continuation-token": text(root, "NextContinuationToken") };
	return { prefixes: all(root, "CommonPrefixes").map((each) => decode(text(each, "Prefix"))), items, next };
}

/** CRC-32 in base64, as S3 wants one beside a list of deletions. The browser's own digests are for HTTPS and localhost alone. */
export function crc32(body: string): string {
	let crc = ~0;
	for (const byte of Array.from(new TextEncoder().encode(body))) {
		crc ^= byte;
		for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
	}
	crc = ~crc >>> 0;
	return btoa(String.fromCharCode(crc >>> 24, (crc >>> 16) & 255, (crc >>> 8) & 255, crc & 255));
}

/** Deletes up to 1,000 objects or versions; returns the refusals. */
export async function deleteAll(bucket: string, items: { key: string; version?: string }[]): Promise<string[]> {
	const body = "<Delete><Quiet>true</Quiet>" + items.map((each) => `<Object><Key>${escape(each.key)}</Key>${each.version ? `<VersionId>${escape(each.version)}</VersionId>` : ""}</Object>`).join("") + "</Delete>";
	const root = await xml(path(bucket) + "?delete", { method: "POST", body, headers: { "Content-Type": "application/xml", "x-amz-checksum-crc32": crc32(body) } });
	return all(root, "Error").map((each) => `${text(each, "Key")}: ${text(each, "Message")}`);
}

/* ---- IAM. ---- */

export async function iam(action: string, fields: Record<string, string> = {}): Promise<Element | undefined> {
	const body = new URLSearchParams({ Action: action, Version: "2010-05-08", ...fields });
	return first(await xml("/iam", { method: "POST", body }), `${action}Result`);
}

/** All pages of a list. */
export async function iamList(action: string, list: string, fields: Record<string, string> = {}): Promise<Element[]> {
	const found: Element[] = [];
	let marker = "";
	do {
		const result = await iam(action, marker ? { ...fields, Marker: marker } : fields);
		found.push(...all(first(result, list), "member"));
		marker = text(result, "IsTruncated") === "true" ? text(result, "Marker") : "";
	} while (marker);
	return found;
}
