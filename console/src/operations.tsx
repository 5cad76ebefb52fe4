// The tabs of the server's health, and two for its root only: RDMA sessions one by one, and the doctor's findings.
import { Component, h } from "preact";
import { Session, json } from "./api";
import { Health } from "./health";
import { Flows } from "./flows";
import { Log } from "./log";
import { by } from "./metrics";
import { Poll, look } from "./poll";
import { Act, Badge, Card, Copy, Empty, Loaded, Problem, Waiting, bytes, count, many } from "./ui";

interface RdmaSession {
	id: number;
	peer: string;
	principal: string;
	access_key: string;
	device: string;
	transport: string;
	state: string;
	encrypted: boolean;
	age_ms: number;
	idle_ms: number;
	in_flight: number;
	credits: number;
	requests: number;
	errors: number;
	bytes_in: number;
	bytes_out: number;
}

interface Page {
	sessions: RdmaSession[];
	total: number;
	next?: number;
}

function span(ms: number): string {
	const s = Math.floor(ms / 1000);
	return s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min` : s < 86400 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
}

/** The part of an ARN that distinguishes users. */
const short = (arn: string): string => arn.replace(/^arn:aws:(iam|sts)::/, "");

const TOKENS: [string, string][] = [["moved", "Moved by RDMA"], ["declined", "Fell back to HTTP"], ["refused", "Refused"], ["failed", "Failed"]];

/** Polled while it is open; after: the last ids of the pages before this one. */
class Sessions extends Component<{ key?: string }, { page?: Page; tokens?: Map<string, number>; problem?: string; after: number[] }> {
	state = { page: undefined as Page | undefined, tokens: undefined as Map<string, number> | undefined, problem: undefined as string | undefined, after: [] as number[] };
	private readonly poll = new Poll((poll) => this.load(poll), (found) => this.setState({ ...found, problem: undefined }), (problem) => this.setState({ problem }));

	componentDidMount(): void {
		this.poll.begin();
	}

	componentWillUnmount(): void {
		this.poll.end();
	}

	private async load(poll: boolean): Promise<{ page: Page; tokens: Map<string, number> }> {
		const { after } = this.state;
		const page = await json<Page>("/admin/v1/sessions" + (after.length ? `/${after[after.length - 1]}` : ""), { poll });
		return { page, tokens: by(await look(true), "nebulaio_token_requests_total", "result") };
	}

	private async turn(after: number[]): Promise<void> {
		await new Promise<void>((done) => this.setState({ after }, done));
		this.poll.begin();
	}

	private table(page: Page): JSX.Element {
		return (
			<div class="scroll"><table>
				<caption>{many(page.total, "session")}</caption>
				<thead><tr>
					<th scope="col">Client</th><th scope="col">Principal</th><th scope="col">Transport</th><th scope="col">State</th><th scope="col" class="number">Age</th>
					<th scope="col" class="number">Requests</th><th scope="col" class="number">In</th><th scope="col" class="number">Out</th>
				</tr></thead>
				<tbody>{page.sessions.map((each) => (
					<tr key={String(each.id)}>
						<td><code>{each.peer}</code></td>
						<td class="long">{short(each.principal) || "not known yet"}<br /><code class="quiet">{each.access_key}</code></td>
						<td>{each.transport}{each.device === each.transport ? null : <span class="quiet"><br />{each.device}</span>}</td>
						<td><Badge text={each.state} kind={each.state === "open" ? "good" : "warn"} /> {each.encrypted ? <Badge text="encrypted" /> : null}</td>
						<td class="number">{span(each.age_ms)}<br /><span class="quiet">idle {span(each.idle_ms)}</span></td>
						<td class="number">{count(each.requests)}<br /><span class="quiet">{each.errors ? `${count(each.errors)} refused` : `${count(each.in_flight)} in flight`}</span></td>
						<td class="number">{bytes(each.bytes_in)}</td><td class="number">{bytes(each.bytes_out)}</td>
					</tr>
				))}</tbody>
			</table></div>
		);
	}

	render(): JSX.Element {
		const { page, tokens, problem, after } = this.state;
		const next = page?.next;
		return (
			<div>
				<Problem text={problem} />
				{page ? (page.sessions.length ? this.table(page) : <Empty icon="link" title="No RDMA sessions now"><p>A client of RDMA has one from its first request on. <code>nebulaio cp</code> says which way it went, and why.</p></Empty>) : problem ? null : <Waiting />}
				<p>
					{after.length ? <Act label="Earlier" run={() => this.turn(after.slice(0, -1))} /> : null} {next === undefined ? null : <Act label="Later" run={() => this.turn([...after, next])} />}
				</p>
				{tokens ? (
					<div class="cards"><Card title="Bodies by RDMA tokens, since the start" text="S3 requests over HTTP whose bodies were to move by RDMA. A declined one went on over HTTP, and its answer told the client why.">
						<dl class="facts">{TOKENS.map(([result, word]) => <div><dt>{word}</dt><dd>{count(tokens.get(result) ?? 0)}</dd></div>)}</dl>
					</Card></div>
				) : null}
			</div>
		);
	}
}

/* ---- The doctor. ---- */

interface Finding {
	state: "ok" | "info" | "warn" | "fail";
	area: string;
	what: string;
	why: string;
	fix: string;
}

const WORDS: Record<Finding["state"], [string, "good" | "warn" | "bad" | undefined]> = { fail: ["broken", "bad"], warn: ["could be better", "warn"], info: ["good to know", undefined], ok: ["good", "good"] };
const ORDER: Finding["state"][] = ["fail", "warn", "info", "ok"];

function Doctor(): JSX.Element {
	const show = ({ findings }: { findings: Finding[] }, again: () => void): JSX.Element => (
		<div>
			<div class="head"><span class="grow quiet">{ORDER.filter((state) => findings.some((each) => each.state === state)).map((state) => `${findings.filter((each) => each.state === state).length} ${WORDS[state][0]}`).join(", ")}</span><Act label="Look again" run={async () => again()} /></div>
			<ul class="rules findings">{[...findings].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state)).map((each) => (
				<li key={each.area + each.what}>
					<div class="long">
						<Badge text={WORDS[each.state][0]} kind={WORDS[each.state][1]} /> <span class="quiet">{each.area}</span>
						<div>{each.what}</div>
						{each.why ? <div class="quiet">{each.why}</div> : null}
						{each.fix ? <Copy text={each.fix} label="Copy" /> : null}
					</div>
				</li>
			))}</ul>
		</div>
	);
	return (
		<div>
			<p class="quiet">The findings of <code>nebulaio doctor</code> on the server's host, about its configuration. Nothing is changed: a fix is a command for a shell there, as root.</p>
			<Loaded of="doctor" load={() => json<{ findings: Finding[] }>("/admin/v1/doctor")} show={show} />
		</div>
	);
}

/* ---- Tabs. ---- */

/** The last ones are for the root only. */
const TABS: { id: string; label: string; root: boolean; show: () => JSX.Element }[] = [
	{ id: "now", label: "Now", root: false, show: () => <Health key="health" /> },
	{ id: "log", label: "Log", root: false, show: () => <Log key="log" /> },
	{ id: "sessions", label: "RDMA sessions", root: true, show: () => <Sessions key="sessions" /> },
	{ id: "flows", label: "Flows", root: true, show: () => <Flows key="flows" /> },
	{ id: "doctor", label: "Doctor", root: true, show: () => <Doctor /> },
];

export function Operations(props: { key?: string; session: Session; at: string[] }): JSX.Element {
	const tabs = TABS.filter((each) => !each.root || props.session.arn === "arn:aws:iam::000000000000:root");
	const tab = tabs.find((each) => each.id === props.at[0]) ?? tabs[0];
	return (
		<section>
			<nav class="tabs" aria-label="Health">{tabs.map(({ id, label }) => <a href={`#/health/${id}`} aria-current={tab.id === id ? "page" : undefined}>{label}</a>)}</nav>
			{tab === TABS[0] ? tab.show() : <div key={tab.id}><div class="head"><h1>{tab.label}</h1></div>{tab.show()}</div>}
		</section>
	);
}
