// The object browser of one bucket: prefixes as folders, versions, uploads, deletions.
import { Component, h } from "preact";
import { Item, Listing, deleteAll, list } from "./api";
import { ObjectDialog } from "./object";
import { Settings } from "./settings";
import { Badge, Button, Check, Empty, FormDialog, Icon, Problem, Waiting, bytes, many, told, when } from "./ui";
import { dropped, upload } from "./uploads";

interface Props {
	key?: string;
	bucket: string;
	prefix: string;
}
interface State {
	listing?: Listing;
	problem?: string;
	versions: boolean;
	filter: string;
	chosen: Set<string>;
	open?: Item;
	deleting: boolean;
	dragged: boolean;
	busy: boolean;
}

const id = (item: Item): string => item.key + "\0" + (item.version ?? "");
const NONE = new Set<string>();

export function folderPath(bucket: string, prefix: string): string {
	return `#/b/${encodeURIComponent(bucket)}${prefix ? "/" + encodeURIComponent(prefix) : ""}`;
}

function Crumbs(props: Props): JSX.Element {
	const parts = props.prefix.split("/").slice(0, -1);
	return (
		<nav class="crumbs" aria-label="Path">
			<a href="#/buckets">Buckets</a>
			{[props.bucket, ...parts].map((part, at) => {
				const prefix = parts.slice(0, at).map((each) => each + "/").join("");
				return <span><span aria-hidden="true">/</span><a href={folderPath(props.bucket, prefix)} aria-current={at === parts.length ? "page" : undefined}>{part || "(empty)"}</a></span>;
			})}
		</nav>
	);
}

/** A bucket: its objects, or its settings. */
export function Bucket(props: Props & { key?: string; settings: boolean }): JSX.Element {
	const { bucket, prefix, settings } = props;
	return (
		<div>
			<Crumbs bucket={bucket} prefix={settings ? "" : prefix} />
			<h1 class="long">{bucket}</h1>
			<nav class="tabs" aria-label="Parts">
				<a href={folderPath(bucket, "")} aria-current={settings ? undefined : "page"}>Objects</a>
				<a href={`#/settings/${encodeURIComponent(bucket)}`} aria-current={settings ? "page" : undefined}>Settings</a>
			</nav>
			{settings ? <Settings key="settings" bucket={bucket} /> : <Objects key="objects" bucket={bucket} prefix={prefix} />}
		</div>
	);
}

class Objects extends Component<Props, State> {
	state: State = { versions: false, filter: "", chosen: NONE, deleting: false, dragged: false, busy: false };
	private round = 0;
	private picker?: HTMLInputElement;

	componentDidMount(): void {
		void this.load();
	}

	componentDidUpdate(before: Props): void {
		if (before.prefix === this.props.prefix && before.bucket === this.props.bucket) return;
		this.setState({ filter: "", listing: undefined });
		void this.load();
	}

	componentWillUnmount(): void {
		this.round++;
	}

	/** Loads the first page, or the page after the shown ones. Only the latest request counts. */
	private async load(more?: Listing): Promise<void> {
		const round = ++this.round;
		this.setState({ problem: undefined, busy: true, chosen: NONE });
		try {
			const page = await list({ bucket: this.props.bucket, prefix: this.props.prefix + this.state.filter, versions: this.state.versions, next: more?.next });
			if (round !== this.round) return;
			this.setState({ busy: false, listing: more ? { prefixes: [...more.prefixes, ...page.prefixes], items: [...more.items, ...page.items], next: page.next } : page });
		} catch (error) {
			if (round === this.round) this.setState({ busy: false, problem: told(error) });
		}
	}

	private addFiles(files: { name: string; file: File }[]): void {
		const { bucket, prefix } = this.props;
		for (const each of files)
			upload(bucket, prefix + each.name, each.file, () => {
				if (this.props.bucket === bucket && this.props.prefix === prefix) void this.load();
			});
	}

	private async drop(event: DragEvent): Promise<void> {
		event.preventDefault();
		this.setState({ dragged: false });
		if (event.dataTransfer) this.addFiles(await dropped(event.dataTransfer));
	}

	private choose(item: Item, on: boolean): void {
		const chosen = new Set(this.state.chosen);
		if (on) chosen.add(id(item));
		else chosen.delete(id(item));
		this.setState({ chosen });
	}

	private chosenItems(): Item[] {
		return (this.state.listing?.items ?? []).filter((each) => this.state.chosen.has(id(each)));
	}

	private itemRow(item: Item): JSX.Element {
		const name = item.key.slice(this.props.prefix.length) || item.key;
		return (
			<tr key={id(item)} class={item.marker ? "marker" : ""}>
				<td class="tick"><Check id={"tick-" + id(item)} label={`Choose ${name}`} hidden checked={this.state.chosen.has(id(item))} onValue={(on) => this.choose(item, on)} /></td>
				<td class="long">
					<button type="button" class="item" disabled={item.marker} onClick={() => this.setState({ open: item })}><Icon name="file" /><span>{name}</span></button>
					{this.state.versions ? <span class="version"><code>{item.version}</code>{item.latest ? <Badge text="current" kind="good" /> : null}{item.marker ? <Badge text="delete marker" kind="warn" /> : null}</span> : null}
				</td>
				<td class="number">{item.marker ? "" : bytes(item.size)}</td>
				<td class="number wide">{when(item.modified)}</td>
			</tr>
		);
	}

	private table(props: Props, listing: Listing): JSX.Element {
		const items = listing.items.filter((each) => each.key !== props.prefix || this.state.versions);
		const everything = items.length > 0 && items.every((each) => this.state.chosen.has(id(each)));
		if (!items.length && !listing.prefixes.length)
			return <Empty icon="folder" title={this.state.filter ? "Nothing begins with this" : "Nothing here yet"}>{this.state.filter ? null : <p>Drop files onto this page, or use the button above.</p>}</Empty>;
		return (
			<div>
				<div class="scroll">
					<table>
						<caption>{[listing.prefixes.length ? many(listing.prefixes.length, "folder") : "", items.length ? many(items.length, this.state.versions ? "version" : "object") : ""].filter((each) => each).join(", ")}{listing.next ? ", and more" : ""}</caption>
						<thead><tr>
							<th class="tick"><Check id="tick-all" label="Choose all" hidden checked={everything} onValue={(on) => this.setState({ chosen: on ? new Set(items.map(id)) : NONE })} /></th>
							<th scope="col">Name</th><th scope="col" class="number">Size</th><th scope="col" class="number wide">Modified</th>
						</tr></thead>
						<tbody>
							{listing.prefixes.map((each) => (
								<tr key={"/" + each}><td class="tick" /><td class="long"><a class="item" href={folderPath(props.bucket, each)}><Icon name="folder" /><span>{each.slice(props.prefix.length)}</span></a></td><td class="number" /><td class="number wide" /></tr>
							))}
							{items.map((each) => this.itemRow(each))}
						</tbody>
					</table>
				</div>
				{listing.next ? <div class="more"><Button label="Show more" disabled={this.state.busy} onClick={() => void this.load(listing)} /></div> : null}
			</div>
		);
	}

	private deleteDialog(props: Props, items: Item[]): JSX.Element {
		const run = async (): Promise<void> => {
			const refused: string[] = [];
			for (let at = 0; at < items.length; at += 1000)
				refused.push(...await deleteAll(props.bucket, items.slice(at, at + 1000).map((each) => ({ key: each.key, version: this.state.versions ? each.version : undefined }))));
			if (refused.length) throw new Error(refused.slice(0, 3).join("; ") + (refused.length > 3 ? `; and ${refused.length - 3} more` : ""));
		};
		return (
			<FormDialog title={`Delete ${many(items.length, this.state.versions ? "version" : "object")}?`} verb="Delete" danger run={run} onDone={() => { this.setState({ deleting: false }); void this.load(); }}>
				<ul class="names">{items.slice(0, 8).map((each) => <li class="long">{each.key}</li>)}{items.length > 8 ? <li>and {items.length - 8} more</li> : null}</ul>
				<p>{this.state.versions ? "These versions are gone for good." : "In a bucket with versions the objects can be restored; otherwise they are gone for good."}</p>
			</FormDialog>
		);
	}

	render(): JSX.Element {
		const { props, state } = this;
		const chosen = this.chosenItems();
		return (
			<section class={state.dragged ? "files drop" : "files"}
				onDragOver={(event: DragEvent) => { event.preventDefault(); if (!state.dragged) this.setState({ dragged: true }); }}
				onDragLeave={(event: DragEvent) => { if (!(event.currentTarget as Element).contains(event.relatedTarget as Node | null)) this.setState({ dragged: false }); }}
				onDrop={(event: DragEvent) => void this.drop(event)}>
				<div class="head">
					<form class="inline grow" onSubmit={(event) => { event.preventDefault(); void this.load(); }}>
						<input class="search" type="search" placeholder="Begins with" aria-label="Names that begin with" value={state.filter} onInput={(event) => this.setState({ filter: (event.target as HTMLInputElement).value })} onChange={() => void this.load()} />
					</form>
					<Button label="Show versions" pressed={state.versions} onClick={() => this.setState({ versions: !state.versions, listing: undefined }, () => void this.load())} />
					{chosen.length ? <Button label={`Delete ${chosen.length}`} icon="bin" kind="danger" onClick={() => this.setState({ deleting: true })} /> : null}
					<Button label="Upload" icon="upload" kind="primary" onClick={() => this.picker?.click()} />
					<input id="files" class="unseen" type="file" multiple tabIndex={-1} aria-label="Files to upload" ref={(element?: Element) => { this.picker = element as HTMLInputElement | undefined; }}
						onChange={(event) => { const input = event.target as HTMLInputElement; this.addFiles(Array.from(input.files ?? []).map((file) => ({ name: file.name, file }))); input.value = ""; }} />
				</div>
				<Problem text={state.problem} />
				{state.listing ? this.table(props, state.listing) : state.problem ? null : <Waiting />}
				{state.open ? <ObjectDialog bucket={props.bucket} item={state.open} onClose={(touched) => { this.setState({ open: undefined }); if (touched) void this.load(); }} /> : null}
				{state.deleting ? this.deleteDialog(props, chosen) : null}
			</section>
		);
	}
}
