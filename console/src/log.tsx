// The latest lines of the server's log, followed while the page is open.
import { Component, h } from "preact";
import { json } from "./api";
import { Poll } from "./poll";
import { Act, Badge, Button, Empty, Field, Problem, Waiting, many } from "./ui";

const LINES_MAX = 2000;
const PAGE_LINES = 200;
const PAGES_MAX = 10;
const LEVELS = ["trace", "debug", "info", "warn", "error"];

interface LogLine {
	id: number;
	time: string;
	level: string;
	component: string;
	message: string;
	request_id?: string;
}

interface Page {
	lines: LogLine[];
	last: number;
	lost: number;
	more: boolean;
}

interface State {
	lines?: LogLine[];
	lost: number;
	/** The server has no lines before these. */
	whole: boolean;
	held: boolean;
	level: string;
	words: string;
	problem?: string;
}

const KINDS: Record<string, "bad" | "warn" | undefined> = { error: "bad", warn: "warn" };

export class Log extends Component<{ key?: string }, State> {
	state: State = { lost: 0, whole: false, held: false, level: "trace", words: "" };
	private last = 0;
	private view?: HTMLElement;
	private readonly poll = new Poll((poll) => this.load(poll), (pages) => this.take(pages), (problem) => this.setState({ problem }));

	componentDidMount(): void {
		this.poll.begin();
	}

	componentWillUnmount(): void {
		this.poll.end();
	}

	private async load(poll: boolean): Promise<Page[]> {
		const pages: Page[] = [];
		let after = this.last;
		do {
			const page = await json<Page>(`/admin/v1/log${after ? `/${after}` : ""}`, { poll });
			pages.push(page);
			after = page.last;
		} while (pages[pages.length - 1].more && pages.length < PAGES_MAX);
		return pages;
	}

	private take(pages: Page[]): void {
		const last = pages[pages.length - 1].last;
		// A server that was started again counts from 1.
		const kept = last < this.last ? [] : this.state.lines ?? [];
		const { view } = this;
		const follows = !view || view.scrollHeight - view.scrollTop - view.clientHeight < 40;
		const lost = this.state.lost + (this.last ? pages.reduce((sum, page) => sum + page.lost, 0) : 0);
		const lines = pages.reduce<LogLine[]>((all, page) => [...all, ...page.lines], kept).slice(-LINES_MAX);
		this.last = last;
		this.setState({ lines, lost, problem: undefined }, () => {
			if (follows && this.view) this.view.scrollTop = this.view.scrollHeight;
		});
	}

	/** Adds lines before the first one. */
	private async earlier(): Promise<void> {
		const begin = this.state.lines?.[0]?.id ?? 1;
		const page = await json<Page>(`/admin/v1/log/${Math.max(begin - 1 - PAGE_LINES, 0)}`);
		const older = page.lines.filter((each) => each.id < begin);
		const lines = [...older, ...(this.state.lines ?? [])].slice(-LINES_MAX);
		this.setState({ lines, whole: !older.length || older[0].id === 1 || lines.length === LINES_MAX });
	}

	private hold(): void {
		const held = !this.state.held;
		this.setState({ held });
		if (held) this.poll.end();
		else this.poll.begin();
	}

	private shown(): LogLine[] {
		const { lines = [], level, words } = this.state;
		const wanted = words.toLowerCase();
		return lines.filter((each) => LEVELS.indexOf(each.level) >= LEVELS.indexOf(level) && `${each.component} ${each.message} ${each.request_id ?? ""}`.toLowerCase().includes(wanted));
	}

	private table(lines: LogLine[]): JSX.Element {
		return (
			<div class="scroll log" tabIndex={0} role="region" aria-label="Lines of the log" ref={(element?: Element) => { this.view = element as HTMLElement | undefined; }}><table>
				<thead><tr><th scope="col">Time (UTC)</th><th scope="col">Level</th><th scope="col">Part</th><th scope="col">Line</th></tr></thead>
				<tbody>{lines.map((each) => (
					<tr key={String(each.id)}>
						<td class="time"><time dateTime={each.time}>{each.time.slice(0, 10)} {each.time.slice(11, 23)}</time></td>
						<td><Badge text={each.level} kind={KINDS[each.level]} /></td>
						<td>{each.component}</td>
						<td class="message">{each.request_id ? <code class="quiet">{each.request_id} </code> : null}{each.message}</td>
					</tr>
				))}</tbody>
			</table></div>
		);
	}

	render(): JSX.Element {
		const { lines, lost, held, level, words, problem } = this.state;
		const shown = this.shown();
		return (
			<div>
				<Problem text={problem} />
				{!lines ? (problem ? null : <Waiting />) : (
					<div>
						<div class="filters">
							<Field id="log-level" label="Level" value={level} options={LEVELS.map((each): [string, string] => [each, each === "trace" ? "all" : each === "error" ? "error" : `${each} and above`])} onValue={(value) => this.setState({ level: value })} />
							<Field id="log-words" label="Contains" type="search" value={words} onValue={(value) => this.setState({ words: value })} />
							{this.state.whole || lines[0]?.id === 1 ? null : <Act label="Earlier lines" run={() => this.earlier()} />}
							<Button label={held ? "Go on" : "Hold"} pressed={held} onClick={() => this.hold()} />
						</div>
						{shown.length ? this.table(shown) : <Empty icon="file" title={lines.length ? "No such lines" : "No lines yet"} />}
						<p class="quiet">{many(shown.length, "line")} of {many(lines.length, "line")}{lost ? `; ${many(lost, "line")} came faster than they could be read` : ""}. The server keeps the latest megabyte in memory; <code>log_level</code> says which lines it writes. Flows write to the same output, but not here.</p>
					</div>
				)}
			</div>
		);
	}
}
