// The use of a bucket, and its quota: told to, and set by, the server's root alone.
import { Component, h } from "preact";
import { Failure, ask, json } from "./api";
import { Button, Card, Field, Loaded, Problem, bytes, count, many, told } from "./ui";

interface Counts {
	bytes: number;
	objects: number;
}
export interface Holding extends Counts {
	name: string;
	quota: Counts;
}

/** Undefined: the user is not told. */
async function allowed<T>(promise: Promise<T>): Promise<T | undefined> {
	try {
		return await promise;
	} catch (error) {
		if (error instanceof Failure && (error.status === 403 || error.status === 404)) return undefined;
		throw error;
	}
}

export async function holdings(): Promise<Map<string, Holding>> {
	const told = await allowed(json<{ buckets: Holding[] }>("/admin/v1/buckets", { poll: true }));
	return new Map((told?.buckets ?? []).map((each): [string, Holding] => [each.name, each]));
}

const UNITS: Record<string, number> = { "": 1, b: 1, kib: 1024, mib: 1024 ** 2, gib: 1024 ** 3, tib: 1024 ** 4 };

/** "10 GiB" in bytes; empty: 0; undefined: no size. */
function size(value: string): number | undefined {
	const match = /^\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*$/i.exec(value);
	if (!value.trim()) return 0;
	const unit = match ? UNITS[match[2].toLowerCase()] : undefined;
	return match && unit ? Math.round(Number(match[1]) * unit) : undefined;
}

/** As one would type it: exact. */
function typed(value: number): string {
	const unit = ["TiB", "GiB", "MiB", "KiB"].find((each) => value && value % UNITS[each.toLowerCase()] === 0);
	return value ? (unit ? `${value / UNITS[unit.toLowerCase()]} ${unit}` : String(value)) : "";
}

interface State {
	bytes: string;
	objects: string;
	problem?: string;
	saved?: boolean;
}

class Editor extends Component<{ held: Holding; again: () => void }, State> {
	state: State = { bytes: typed(this.props.held.quota.bytes), objects: this.props.held.quota.objects ? String(this.props.held.quota.objects) : "" };

	private async save(): Promise<void> {
		const most = size(this.state.bytes);
		if (most === undefined) {
			this.setState({ problem: "A size is a number with KiB, MiB, GiB or TiB behind it, or without." });
			return;
		}
		try {
			await ask(`/admin/v1/buckets/${encodeURIComponent(this.props.held.name)}/quota`, { method: "PUT", body: JSON.stringify({ bytes: most, objects: Number(this.state.objects) }) });
			this.setState({ problem: undefined, saved: true });
			this.props.again();
		} catch (error) {
			this.setState({ problem: told(error), saved: false });
		}
	}

	render(): JSX.Element {
		const { state } = this;
		const { held } = this.props;
		const share = held.quota.bytes ? Math.round((100 * held.bytes) / held.quota.bytes) : undefined;
		return (
			<form onSubmit={(event) => { event.preventDefault(); void this.save(); }}>
				<p>Holds <strong>{bytes(held.bytes)}</strong> in {many(held.objects, "object")} and versions{share === undefined ? "" : `: ${share} % of the quota`}.</p>
				{share === undefined ? null : <meter {...{ min: 0, max: 100, high: 85 }} value={String(Math.min(share, 100))} aria-label="Quota in use" />}
				<div class="row">
					<Field id="quota-bytes" label="At most" value={state.bytes} hint="10 GiB; empty: no limit" onValue={(value) => this.setState({ bytes: value, saved: false })} />
					<Field id="quota-objects" label="Objects" type="number" value={state.objects} hint="Empty: no limit" onValue={(value) => this.setState({ objects: value, saved: false })} />
					<Button label="Save" submit />
				</div>
				<Problem text={state.problem} />
				{state.saved ? <p class="notice" role="status">{held.quota.bytes || held.quota.objects ? `The quota is in force: ${held.quota.bytes ? bytes(held.quota.bytes) : "no limit of bytes"}, ${held.quota.objects ? count(held.quota.objects) : "no limit of"} objects.` : "There is no quota."}</p> : null}
			</form>
		);
	}
}

export function Quota({ bucket }: { bucket: string }): JSX.Element {
	const load = (): Promise<Holding | undefined> => allowed(json<Holding>(`/admin/v1/buckets/${encodeURIComponent(bucket)}`));
	const show = (held: Holding | undefined, again: () => void): JSX.Element => (held ? <Editor key="quota" held={held} again={again} /> : <p class="quiet">The server's root sets it.</p>);
	return <Card title="Quota" text="The most that the bucket holds, its noncurrent versions included. A write that would exceed it is refused."><Loaded of={bucket} load={load} show={show} /></Card>;
}
