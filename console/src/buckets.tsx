// The list of buckets; creates and deletes them.
import { Component, h } from "preact";
import { Bucket, Session, ask, listBuckets, path } from "./api";
import { Holding, holdings } from "./quota";
import { Button, Check, Empty, Field, FormDialog, Icon, Loaded, bytes, count, many, when } from "./ui";

interface CreateState {
	name: string;
	versioning: boolean;
	lock: boolean;
}

class CreateBucket extends Component<{ onDone: () => void }, CreateState> {
	state: CreateState = { name: "", versioning: false, lock: false };

	private async run(): Promise<void> {
		const { name, versioning, lock } = this.state;
		await ask(path(name), { method: "PUT", headers: lock ? { "x-amz-bucket-object-lock-enabled": "true" } : {} });
		if (versioning && !lock)
			await ask(path(name) + "?versioning", { method: "PUT", body: "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>" });
	}

	render(): JSX.Element {
		const { props, state } = this;
		return (
			<FormDialog title="Create a bucket" verb="Create" onDone={props.onDone} run={() => this.run()}>
				<Field id="bucket-name" label="Name" value={state.name} required focus hint="3 to 63 lower-case letters, digits, dots and hyphens" onValue={(name) => this.setState({ name: name.trim() })} />
				<Check id="bucket-versioning" label="Keep versions of objects" checked={state.versioning || state.lock} disabled={state.lock} onValue={(versioning) => this.setState({ versioning })} />
				<Check id="bucket-lock" label="Object lock: versions can be protected from deletion (only now, and for good)" checked={state.lock} onValue={(lock) => this.setState({ lock })} />
			</FormDialog>
		);
	}
}

class DeleteBucket extends Component<{ name: string; onDone: () => void }, {}> {
	render(): JSX.Element {
		const { props } = this;
		return (
			<FormDialog title="Delete this bucket?" verb="Delete" danger onDone={props.onDone} run={async () => { await ask(path(props.name), { method: "DELETE" }); }}>
				<p>The bucket <strong class="long">{props.name}</strong> must be empty, without versions and unfinished uploads. Its settings are deleted with it.</p>
			</FormDialog>
		);
	}
}

interface State {
	filter: string;
	creating: boolean;
	deleting?: string;
	round: number;
}

export class Buckets extends Component<{ session: Session }, State> {
	state: State = { filter: "", creating: false, round: 0 };

	private done(): void {
		this.setState({ creating: false, deleting: undefined, round: this.state.round + 1 });
	}

	private table({ buckets, held }: { buckets: Bucket[]; held: Map<string, Holding> }): JSX.Element {
		const shown = buckets.filter((each) => each.name.includes(this.state.filter));
		if (!buckets.length)
			return <Empty icon="bucket" title="No buckets yet"><p>A bucket holds objects. Create one, or ask for the right to list those that there are.</p></Empty>;
		return (
			<div class="scroll">
				<table>
					<caption>{shown.length === buckets.length ? many(buckets.length, "bucket") : `${shown.length} of ${many(buckets.length, "bucket")}`}</caption>
					<thead><tr><th scope="col">Name</th>{held.size ? <th scope="col" class="number">Holds</th> : null}{held.size ? <th scope="col" class="number wide">Objects</th> : null}<th scope="col" class="number wide">Created</th><th scope="col" class="acts"><span class="unseen">Actions</span></th></tr></thead>
					<tbody>
						{shown.map((each) => (
							<tr key={each.name}>
								<td class="long"><a class="item" href={`#/b/${encodeURIComponent(each.name)}`}><Icon name="bucket" /><span>{each.name}</span></a></td>
								{held.size ? <td class="number">{bytes(held.get(each.name)?.bytes ?? 0)}{held.get(each.name)?.quota.bytes ? <span class="quiet"> of {bytes(held.get(each.name)?.quota.bytes ?? 0)}</span> : null}</td> : null}
								{held.size ? <td class="number wide">{count(held.get(each.name)?.objects ?? 0)}</td> : null}
								<td class="number wide">{when(each.created)}</td>
								<td class="acts"><Button label={`Delete ${each.name}`} icon="bin" kind="quiet" bare onClick={() => this.setState({ deleting: each.name })} /></td>
							</tr>
						))}
					</tbody>
				</table>
			</div>
		);
	}

	render(): JSX.Element {
		const { state } = this;
		return (
			<section>
				<div class="head">
					<h1>Buckets</h1>
					<input class="search" type="search" placeholder="Filter" aria-label="Filter by name" value={state.filter} onInput={(event) => this.setState({ filter: (event.target as HTMLInputElement).value })} />
					<Button label="Create bucket" icon="plus" kind="primary" onClick={() => this.setState({ creating: true })} />
				</div>
				<Loaded of={String(state.round)} load={async () => ({ buckets: await listBuckets(), held: await holdings() })} show={(all: { buckets: Bucket[]; held: Map<string, Holding> }) => this.table(all)} />
				{state.creating ? <CreateBucket onDone={() => this.done()} /> : null}
				{state.deleting ? <DeleteBucket name={state.deleting} onDone={() => this.done()} /> : null}
			</section>
		);
	}
}
