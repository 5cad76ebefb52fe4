// One object: its properties, a preview, its tags, a link to share.
import { Component, h } from "preact";
import { Item, UNREACHABLE, ask, path, post, query, reachable } from "./api";
import { Summary, format } from "./formats";
import { Retention } from "./retention";
import { Tags } from "./tags";
import { Button, Copy, Dialog, Field, Loaded, Problem, bytes, told, when } from "./ui";

const PREVIEW_TEXT_BYTES = 256 * 1024;
const PREVIEW_IMAGE_BYTES = 16 * 1024 * 1024;
const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/svg+xml", "image/bmp", "image/x-icon"];
const IMAGE_NAMES: Record<string, string> = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", avif: "image/avif", svg: "image/svg+xml", bmp: "image/bmp", ico: "image/x-icon" };

interface Props {
	bucket: string;
	item: Item;
	onClose: (touched: boolean) => void;
}

function where(props: Props, more: Record<string, string> = {}): string {
	// Without a version id it is the newest one, which a "null" version need not be.
	const version = props.item.version === "null" && props.item.latest ? undefined : props.item.version || undefined;
	return path(props.bucket, props.item.key) + query({ ...more, versionId: version });
}

/* ---- The preview. ---- */

type Look = { image: string } | { text: string; cut: boolean } | { none: string } | { summary: Summary };

/** Bytes that are in memory already are not asked for again. */
function part(props: Props, start: Uint8Array) {
	return async (from: number, to: number): Promise<Uint8Array> => {
		if (to <= start.length) return start.subarray(from, to);
		const answer = await ask(where(props), { headers: { Range: `bytes=${from}-${to - 1}` } });
		return new Uint8Array(await answer.arrayBuffer());
	};
}

async function look(props: Props): Promise<Look> {
	const { item } = props;
	if (!item.size) return { none: "The object is empty." };
	const ending = item.key.split(".").pop()?.toLowerCase() ?? "";
	const answer = await ask(where(props), { headers: { Range: `bytes=0-${PREVIEW_TEXT_BYTES - 1}` } });
	const type = (answer.headers.get("X-Console-Content-Type") ?? "").split(";")[0].trim();
	const image = IMAGES.includes(type) ? type : IMAGE_NAMES[ending];
	if (image) {
		if (item.size > PREVIEW_IMAGE_BYTES) return { none: "The image is too large to be shown here." };
		const whole = item.size > PREVIEW_TEXT_BYTES ? await ask(where(props)) : answer;
		return { image: URL.createObjectURL(new Blob([await whole.arrayBuffer()], { type: image })) };
	}
	const data = new Uint8Array(await answer.arrayBuffer());
	const known = format(item.key.toLowerCase(), data);
	if (known)
		try {
			return { summary: await known(item.size, part(props, data)) };
		} catch (error) {
			return { none: `It cannot be read as what it seems to be. ${told(error)}` };
		}
	if (data.includes(0)) return { none: "These bytes are no text." };
	let shown: string;
	try {
		// A character that the cut divides is no fault.
		shown = new TextDecoder("utf-8", { fatal: true }).decode(data, { stream: item.size > data.length });
	} catch {
		return { none: "These bytes are no text." };
	}
	if ((type === "application/json" || ending === "json") && item.size <= data.length)
		try {
			shown = JSON.stringify(JSON.parse(shown), null, 2);
		} catch {
			// The text is shown unchanged.
		}
	return { text: shown, cut: item.size > data.length };
}

function Summed(props: Summary): JSX.Element {
	return (
		<div>
			<dl class="facts"><div><dt>Format</dt><dd>{props.kind}</dd></div>{props.facts.map(([name, value]) => <div><dt>{name}</dt><dd class="long">{value}</dd></div>)}</dl>
			<div class="scroll part" tabIndex={0} role="region" aria-label="Its parts"><table>
				<thead><tr>{props.columns.map((each) => <th scope="col">{each}</th>)}</tr></thead>
				<tbody>{props.rows.map((row) => <tr>{row.map((cell) => <td class="long">{cell}</td>)}</tr>)}</tbody>
			</table></div>
			{props.more ? <p class="quiet">And {props.more.toLocaleString("en")} more.</p> : null}
		</div>
	);
}

class Preview extends Component<Props, {}> {
	private url?: string;

	componentWillUnmount(): void {
		if (this.url) URL.revokeObjectURL(this.url);
	}

	render(): JSX.Element {
		const { props } = this;
		const show = (seen: Look): JSX.Element => {
			if ("summary" in seen) return <Summed {...seen.summary} />;
			if ("none" in seen) return <p class="quiet">{seen.none}</p>;
			if ("text" in seen) return <div><pre tabIndex={0} aria-label="The object's text">{seen.text}</pre>{seen.cut ? <p class="quiet">The first {bytes(PREVIEW_TEXT_BYTES)}.</p> : null}</div>;
			this.url = seen.image;
			return <img class="preview" src={seen.image} alt={`Preview of ${props.item.key}`} />;
		};
		return <Loaded of={props.item.key + props.item.version} load={() => look(props)} show={show} />;
	}
}

/* ---- Its properties. ---- */

const PLAIN: [string, string][] = [["X-Console-Content-Type", "Type"], ["Content-Encoding", "Encoding"], ["X-Console-Cache-Control", "Cache-Control"], ["X-Console-Content-Disposition", "Content-Disposition"],
	["x-amz-server-side-encryption", "Encrypted by"], ["x-amz-object-lock-mode", "Lock"], ["x-amz-object-lock-retain-until-date", "Locked until"], ["x-amz-object-lock-legal-hold", "Legal hold"], ["x-amz-expiration", "Expiry"]];

async function describe(props: Props): Promise<[string, string][]> {
	const { headers } = await ask(where(props), { method: "HEAD" });
	const rows: [string, string][] = PLAIN.filter(([name]) => headers.get(name)).map(([name, label]) => [label, headers.get(name) ?? ""]);
	headers.forEach((value, name) => {
		if (name.startsWith("x-amz-meta-")) rows.push([name.slice("x-amz-meta-".length), value]);
		else if (name.startsWith("x-amz-checksum-") && name !== "x-amz-checksum-type") rows.push([name.slice("x-amz-checksum-".length).toUpperCase(), value]);
	});
	return rows;
}

function Facts(props: Props): JSX.Element {
	const { item } = props;
	const always: [string, string][] = [["Size", `${bytes(item.size)}${item.size >= 1024 ? ` (${item.size.toLocaleString("en")} bytes)` : ""}`], ["Modified", when(item.modified)], ["ETag", item.etag.replace(/"/g, "")]];
	if (item.version) always.push(["Version", item.version]);
	const show = (rows: [string, string][]): JSX.Element => (
		<dl class="facts">{[...always, ...rows].map(([name, value]) => <div><dt>{name}</dt><dd class="long">{value}</dd></div>)}</dl>
	);
	return <Loaded of={item.key + item.version} load={() => describe(props)} show={show} />;
}

/* ---- A link. ---- */

const TIMES: [string, string][] = [["900", "15 minutes"], ["3600", "an hour"], ["14400", "4 hours"], ["43200", "12 hours"]];

class Share extends Component<Props, { seconds: string; url?: string; until?: number; problem?: string }> {
	state = { seconds: "3600", url: undefined as string | undefined, until: undefined as number | undefined, problem: undefined as string | undefined };

	private async make(): Promise<void> {
		const [address, parameters] = where(this.props).slice("/s3".length).split("?");
		try {
			const made = await post<{ url: string; seconds: number }>("/api/share", { path: address, query: parameters ?? "", seconds: Number(this.state.seconds) });
			this.setState({ url: made.url, until: Date.now() + made.seconds * 1000, problem: undefined });
		} catch (error) {
			this.setState({ problem: told(error) });
		}
	}

	render(): JSX.Element {
		const { state } = this;
		return (
			<div>
				<form class="row" onSubmit={(event) => { event.preventDefault(); void this.make(); }}>
					<Field id="share-time" label="The link works for" value={state.seconds} options={TIMES} onValue={(seconds) => this.setState({ seconds })} />
					<Button label="Make a link" icon="link" submit />
				</form>
				<Problem text={state.problem} />
				{state.url ? <div><Copy text={state.url} label="Copy" /><p class="quiet">Whoever has the link can read the object, until {when(state.until ?? 0)}: no longer than your session lasts.</p></div> : null}
			</div>
		);
	}
}

export class ObjectDialog extends Component<Props, { touched: boolean }> {
	state = { touched: false };

	render(): JSX.Element {
		const { props } = this;
		const name = props.item.key.split("/").pop() || props.item.key;
		const which: Props = { bucket: props.bucket, item: props.item, onClose: props.onClose };
		const close = (): void => props.onClose(this.state.touched);
		if (!reachable(props.item.key))
			return <Dialog title={name} onClose={close}><div class="body"><p>{UNREACHABLE} Use another client for <strong class="long">{props.item.key}</strong>.</p></div></Dialog>;
		return (
			<Dialog title={name} wide onClose={close}>
				<div class="body object">
					<p class="quiet long">{props.bucket}/{props.item.key}</p>
					<p><a class="button primary" href={where(props)} download>Download</a></p>
					<h3>Preview</h3>
					<Preview {...which} />
					<h3>Properties</h3>
					<Facts {...which} />
					<h3>Tags</h3>
					<Tags url={where(which, { tagging: "" })} />
					<h3>Retention</h3>
					<Retention retention={where(which, { retention: "" })} hold={where(which, { "legal-hold": "" })} />
					<h3>Share</h3>
					<Share {...which} />
				</div>
			</Dialog>
		);
	}
}
