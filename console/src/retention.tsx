// How long a version is protected from deletion: in a bucket with an object lock.
import { Component, h } from "preact";
import { Failure, ask, optional, text, xml } from "./api";
import { Act, Badge, Button, Field, Loaded, Problem, told, when } from "./ui";

interface Held {
	mode: string;
	until: string;
	hold: boolean;
}

interface Urls {
	/** With their "?retention" and "?legal-hold". */
	retention: string;
	hold: string;
}

/** Null: the bucket has no object lock. */
async function read(urls: Urls): Promise<Held | null> {
	try {
		const [retention, hold] = await Promise.all([optional(xml(urls.retention)), optional(xml(urls.hold))]);
		return { mode: text(retention, "Mode"), until: text(retention, "RetainUntilDate"), hold: text(hold, "Status") === "ON" };
	} catch (error) {
		if (error instanceof Failure && error.status === 400) return null;
		throw error;
	}
}

class Editor extends Component<Urls & { held: Held; again: () => void }, { mode: string; until: string; problem?: string }> {
	state = { mode: this.props.held.mode || "GOVERNANCE", until: this.props.held.until.slice(0, 10), problem: undefined as string | undefined };

	private async save(): Promise<void> {
		const { mode, until } = this.state;
		try {
			await ask(this.props.retention, { method: "PUT", body: `<Retention><Mode>${mode}</Mode><RetainUntilDate>${until}T00:00:00Z</RetainUntilDate></Retention>` });
			this.setState({ problem: undefined });
			this.props.again();
		} catch (error) {
			this.setState({ problem: told(error) });
		}
	}

	render(): JSX.Element {
		const { props, state } = this;
		const turn = (next: string) => async (): Promise<void> => {
			await ask(props.hold, { method: "PUT", body: `<LegalHold><Status>${next}</Status></LegalHold>` });
			props.again();
		};
		return (
			<div>
				<p class="line"><Badge text={props.held.mode ? `${props.held.mode.toLowerCase()} until ${when(props.held.until)}` : "No retention"} kind={props.held.mode ? "good" : undefined} /> <Badge text={props.held.hold ? "Legal hold" : "No legal hold"} kind={props.held.hold ? "good" : undefined} />
					{props.held.hold ? <Act label="Lift the legal hold" kind="danger" run={turn("OFF")} /> : <Act label="Put on legal hold" run={turn("ON")} />}</p>
				<form class="row" onSubmit={(event) => { event.preventDefault(); void this.save(); }}>
					<Field id="retain-mode" label="Retention" value={state.mode} options={[["GOVERNANCE", "Governance: some may lift it"], ["COMPLIANCE", "Compliance: nobody may"]]} onValue={(mode) => this.setState({ mode })} />
					<Field id="retain-until" label="Until" type="date" value={state.until} required onValue={(until) => this.setState({ until })} />
					<Button label="Retain" submit />
				</form>
				<Problem text={state.problem} />
			</div>
		);
	}
}

export function Retention(props: Urls): JSX.Element {
	const show = (held: Held | null, again: () => void): JSX.Element => (held ? <Editor key={JSON.stringify(held)} {...props} held={held} again={again} /> : <p class="quiet">The bucket has no object lock.</p>);
	return <Loaded of={props.retention} load={() => read(props)} show={show} />;
}
