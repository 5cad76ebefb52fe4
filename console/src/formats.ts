// Reads the heads of well-known formats: safetensors, Parquet, pcapng. No page here: bytes to lines alone. The bytes are
// anybody's: each count and length is held against what is there, and a fault ends the reading.

/** The facts that a file states, and the rows of its parts. */
export interface Summary {
	kind: string;
	facts: [string, string][];
	columns: string[];
	rows: string[][];
	/** How many rows are not told. */
	more: number;
}

/** Reads a part of the object. */
export type Fetch = (from: number, to: number) => Promise<Uint8Array>;

export const ROWS_MAX = 200;
const HEAD_BYTES_MAX = 4 * 1024 * 1024;
const CAPTURE_BYTES = 256 * 1024;

const view = (data: Uint8Array): DataView => new DataView(data.buffer, data.byteOffset, data.byteLength);
const utf8 = (data: Uint8Array): string => new TextDecoder("utf-8", { fatal: true }).decode(data);
const number = (value: number): string => value.toLocaleString("en");

function finish(kind: string, facts: [string, string][], columns: string[], rows: string[][]): Summary {
	return { kind, facts, columns, rows: rows.slice(0, ROWS_MAX), more: Math.max(0, rows.length - ROWS_MAX) };
}

/* ---- safetensors: the length of a JSON head, the head, the tensors. ---- */

async function safetensors(size: number, fetch: Fetch): Promise<Summary> {
	const length = Number(view(await fetch(0, 8)).getBigUint64(0, true));
	if (length < 2 || length > size - 8) throw new Error("The head's length is longer than the object.");
	if (length > HEAD_BYTES_MAX) throw new Error("The head is too long to be shown here.");
	const head = JSON.parse(utf8(await fetch(8, 8 + length))) as Record<string, { dtype?: unknown; shape?: unknown }>;
	const rows: string[][] = [];
	let parameters = 0;
	for (const name of Object.keys(head)) {
		if (name === "__metadata__") continue;
		const shape = Array.isArray(head[name].shape) ? (head[name].shape as unknown[]).map(Number) : [];
		parameters += shape.reduce((product, each) => product * each, 1);
		rows.push([name, String(head[name].dtype), shape.join(" × ") || "1"]);
	}
	const facts: [string, string][] = [["Tensors", number(rows.length)], ["Parameters", number(parameters)]];
	const metadata = (head.__metadata__ ?? {}) as Record<string, unknown>;
	for (const name of Object.keys(metadata).slice(0, 20)) facts.push([name, String(metadata[name]).slice(0, 500)]);
	return finish("safetensors", facts, ["Tensor", "Type", "Shape"], rows);
}

/* ---- Parquet: the metadata is at the end, in Thrift's compact protocol. ---- */

type Thrift = number | string | boolean | Thrift[] | Map<number, Thrift>;

class Compact {
	private at = 0;
	private values = 0;

	constructor(private readonly data: Uint8Array) {}

	private byte(): number {
		if (this.at >= this.data.length) throw new Error("The metadata ends too early.");
		return this.data[this.at++];
	}

	private varint(): number {
		let [value, scale] = [0, 1];
		for (let i = 0; i < 10; i++) {
			const byte = this.byte();
			value += (byte & 127) * scale;
			if (byte < 128) return value;
			scale *= 128;
		}
		throw new Error("The metadata has a number that is too long.");
	}

	private integer(): number {
		const value = this.varint();
		return value % 2 ? -(value + 1) / 2 : value / 2;
	}

	private bytes(length: number): Uint8Array {
		if (length > this.data.length - this.at) throw new Error("The metadata ends too early.");
		this.at += length;
		return this.data.subarray(this.at - length, this.at);
	}

	private value(type: number, depth: number, inList: boolean): Thrift {
		if (++this.values > 2000000 || depth > 12) throw new Error("The metadata has too many values.");
		if (type === 1 || type === 2) return inList ? this.byte() === 1 : type === 1;
		if (type === 3) return this.byte();
		if (type >= 4 && type <= 6) return this.integer();
		if (type === 7) return view(this.bytes(8)).getFloat64(0, true);
		if (type === 8) return new TextDecoder().decode(this.bytes(this.varint()));
		if (type === 9 || type === 10) return this.list(depth);
		if (type === 12) return this.struct(depth + 1);
		throw new Error("The metadata has a value of an unknown type.");
	}

	private list(depth: number): Thrift[] {
		const head = this.byte();
		const length = head >> 4 === 15 ? this.varint() : head >> 4;
		const found: Thrift[] = [];
		if (length > this.data.length - this.at) throw new Error("The metadata ends too early.");
		for (let i = 0; i < length; i++) found.push(this.value(head & 15, depth + 1, true));
		return found;
	}

	struct(depth = 0): Map<number, Thrift> {
		const fields = new Map<number, Thrift>();
		let id = 0;
		for (;;) {
			const head = this.byte();
			if (!head) return fields;
			id = head >> 4 ? id + (head >> 4) : this.integer();
			fields.set(id, this.value(head & 15, depth, false));
		}
	}
}

const TYPES = ["BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"];
const REPEATS = ["required", "optional", "repeated"];

async function parquet(size: number, fetch: Fetch): Promise<Summary> {
	const tail = await fetch(Math.max(0, size - 8), size);
	if (tail.length < 8 || utf8(tail.subarray(4)) !== "PAR1") throw new Error("The end is not that of a Parquet file.");
	const length = view(tail).getUint32(0, true);
	if (length > size - 12) throw new Error("The metadata is longer than the object.");
	if (length > HEAD_BYTES_MAX) throw new Error("The metadata is too long to be shown here.");
	const file = new Compact(await fetch(size - 8 - length, size - 8)).struct();
	const schema = (file.get(2) ?? []) as Map<number, Thrift>[];
	const rows = schema.slice(1).filter((each) => each.get(1) !== undefined)
		.map((each) => [String(each.get(4)), TYPES[Number(each.get(1))] ?? "?", REPEATS[Number(each.get(3))] ?? ""]);
	const facts: [string, string][] = [["Rows", number(Number(file.get(3) ?? 0))], ["Row groups", number(((file.get(4) ?? []) as Thrift[]).length)], ["Columns", number(rows.length)]];
	if (file.get(6) !== undefined) facts.push(["Written by", String(file.get(6)).slice(0, 200)]);
	return finish("Parquet", facts, ["Column", "Type", "Values"], rows);
}

/* ---- pcapng: blocks, one after the other; the first part of the object is read. ---- */

const LINKS: Record<number, string> = { 0: "null", 1: "Ethernet", 101: "raw IP", 113: "Linux cooked", 276: "Linux cooked 2" };

interface Interface {
	link: string;
	name: string;
	packets: number;
	bytes: number;
	/** Ticks of a second. */
	ticks: number;
}

/** Of an interface: its name (2), and the resolution of its times (9). */
function options(block: DataView, big: boolean, found: Interface): void {
	for (let at = 16; at + 4 <= block.byteLength - 4; ) {
		const [code, length] = [block.getUint16(at, !big), block.getUint16(at + 2, !big)];
		if (!code || at + 4 + length > block.byteLength - 4) return;
		const value = new Uint8Array(block.buffer, block.byteOffset + at + 4, length);
		if (code === 2) found.name = new TextDecoder().decode(value);
		if (code === 9 && length === 1) found.ticks = value[0] & 128 ? 2 ** (value[0] & 127) : 10 ** value[0];
		at += 4 + ((length + 3) & ~3);
	}
}

async function pcapng(size: number, fetch: Fetch): Promise<Summary> {
	const data = await fetch(0, Math.min(size, CAPTURE_BYTES));
	const all = view(data);
	const faces: Interface[] = [];
	let [big, at, packets, first, last] = [false, 0, 0, Infinity, -Infinity];
	while (at + 12 <= data.length) {
		if (all.getUint32(at, true) === 0x0a0d0d0a) {
			big = all.getUint32(at + 8, false) === 0x1a2b3c4d;
			if (!big && all.getUint32(at + 8, true) !== 0x1a2b3c4d) throw new Error("A section does not begin as one of pcapng does.");
		}
		const [type, length] = [all.getUint32(at, !big), all.getUint32(at + 4, !big)];
		if (length < 12 || length % 4) throw new Error(`The block at byte ${number(at)} has a wrong length.`);
		if (length > data.length - at) break;
		const block = new DataView(data.buffer, data.byteOffset + at, length);
		if (type === 1 && length >= 20 && faces.length < 1000) {
			const face: Interface = { link: LINKS[block.getUint16(8, !big)] ?? `link type ${block.getUint16(8, !big)}`, name: "", packets: 0, bytes: 0, ticks: 1e6 };
			options(block, big, face);
			faces.push(face);
		}
		if (type === 6 && length >= 32) {
			const face = faces[block.getUint32(8, !big)];
			if (face) {
				const time = (block.getUint32(12, !big) * 2 ** 32 + block.getUint32(16, !big)) / face.ticks;
				[first, last] = [Math.min(first, time), Math.max(last, time)];
				face.packets++;
				face.bytes += block.getUint32(24, !big);
				packets++;
			}
		}
		at += length;
	}
	const facts: [string, string][] = [["Packets", number(packets) + (at < size ? `, in the first ${number(at)} bytes` : "")]];
	const time = (seconds: number): string => (Math.abs(seconds) < 8.64e12 ? new Date(seconds * 1000).toISOString() : "?");
	if (packets) facts.push(["First", time(first)], ["Last", time(last)]);
	return finish("pcapng", facts, ["Interface", "Link", "Packets", "Bytes on the wire"], faces.map((each, idx) => [each.name || String(idx), each.link, number(each.packets), number(each.bytes)]));
}

/* ---- */

/** The reader of the format that the object's name, or its first bytes, name; undefined: none of these. */
export function format(key: string, start: Uint8Array): ((size: number, fetch: Fetch) => Promise<Summary>) | undefined {
	if (start.length >= 12 && view(start).getUint32(0, false) === 0x0a0d0d0a) return pcapng;
	if (start.length >= 12 && String.fromCharCode(...Array.from(start.subarray(0, 4))) === "PAR1") return parquet;
	if (key.endsWith(".safetensors") && start.length >= 10) return safetensors;
	return undefined;
}
