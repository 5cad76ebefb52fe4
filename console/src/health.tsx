// The server's health, polled while the page is open.
import { Component, h } from "preact";
import { ask, json } from "./api";
import { Look, by, quantile, rate, sum } from "./metrics";
import { Line, Plot } from "./plot";
import { LOOK_MS, Poll, look } from "./poll";
import { Act, Badge, Card, Problem, Waiting, bytes, count } from "./ui";

const LOOKS_MAX = 150;

interface Info {
	accounts: number;
	store: { volume_bytes: number; used_bytes: number; free_bytes: number; objects: number; buckets: number; cache_bytes: number; log_bytes: number };
	volumes: { state: string; bytes: number }[];
}

interface Scrub {
	running: boolean;
	done_bytes: number;
	all_bytes: number;
	runs: number;
	bytes: number;
	damaged: number;
	mended: number;
	parity_mended: number;
}

interface State {
	looks: Look[];
	info?: Info;
	scrub?: Scrub;
	problem?: string;
}

function duration(value: number): string {
	if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
	return value < 1 ? `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms` : `${value.toFixed(1)} s`;
}

function uptime(seconds: number): string {
	const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
	return days ? `${days} d ${hours} h` : hours ? `${hours} h ${minutes} min` : `${minutes} min`;
}

const perSecond = (value: number): string => `${value < 10 && value > 0 ? value.toFixed(1) : count(Math.round(value))}/s`;
const bytesPerSecond = (value: number): string => `${bytes(value)}/s`;

/** Of volumes, one metric a line. */
const WRONGS: [string, string][] = [["nebulaio_disk_errors_total", "errors"], ["nebulaio_array_degraded_reads_total", "degraded reads"], ["nebulaio_store_pieces_mended_total", "pieces mended"]];

export class Health extends Component<{}, State> {
	state: State = { looks: [] };
	private readonly poll = new Poll((poll) => this.load(poll), (found) => this.setState({ ...found, problem: undefined, looks: [...this.state.looks, found.now].slice(-LOOKS_MAX) }), (problem) => this.setState({ problem }));

	componentDidMount(): void {
		this.poll.begin();
	}

	componentWillUnmount(): void {
		this.poll.end();
	}

	/** The server reports volumes, sizes and scrubs to its root only. */
	private async load(poll: boolean): Promise<{ now: Look; info?: Info; scrub?: Scrub }> {
		const now = await look(poll);
		const info = await json<Info>("/admin/v1/info", { poll: true }).catch(() => undefined);
		return { now, info, scrub: info && (await json<Scrub>("/admin/v1/scrub", { poll: true }).catch(() => undefined)) };
	}

	/** A line with a value for each pair of samples. */
	private line(label: string, value: (before: Look, now: Look) => number | undefined): Line {
		const { looks } = this.state;
		return { label, values: looks.slice(1).map((now, at) => value(looks[at], now)) };
	}

	private names(name: string, label: string): string[] {
		const { looks } = this.state;
		return Array.from(by(looks[looks.length - 1], name, label), ([each, value]) => ({ each, value })).filter(({ value }) => value > 0).sort((a, b) => b.value - a.value).map(({ each }) => each);
	}

	private plots(): JSX.Element {
		const common = { places: LOOKS_MAX - 1, seconds: ((LOOKS_MAX - 1) * LOOK_MS) / 1000 };
		const transports = this.names("nebulaio_s3_body_bytes_total", "transport").slice(0, 2);
		const hits = (before: Look, now: Look): number | undefined => {
			const [hit, miss] = [rate(before, now, "nebulaio_store_cache_hits_total"), rate(before, now, "nebulaio_store_cache_misses_total")];
			return hit + miss > 0 ? (100 * hit) / (hit + miss) : undefined;
		};
		const moved = transports.reduce<Line[]>((lines, transport) => [...lines, ...[["in", "received"], ["out", "sent"]].map(([direction, word]) =>
			this.line(`${transport} ${word}`, (before, now) => rate(before, now, "nebulaio_s3_body_bytes_total", { transport, direction })))], []);
		const copies = (before: Look, now: Look): number | undefined => {
			const bodies = rate(before, now, "nebulaio_s3_body_bytes_total");
			return bodies > 0 ? rate(before, now, "nebulaio_copied_bytes_total") / bodies : undefined;
		};
		const states = Array.from(by(this.state.looks[this.state.looks.length - 1], "nebulaio_store_volume_state", "state").keys()).sort();
		const owners = this.names("nebulaio_region_frames", "owner").filter((owner) => owner !== "free").slice(0, 5);
		return (
			<div class="plots">
				<Plot title="Requests" format={perSecond} {...common} lines={[["2xx", "done"], ["4xx", "refused"], ["5xx", "failed"]].map(([status, label]) => this.line(label, (before, now) => rate(before, now, "nebulaio_s3_requests_total", { status })))} />
				<Plot title="Latency" format={duration} {...common} lines={[[0.5, "p50"], [0.99, "p99"]].map(([share, label]) => this.line(String(label), (before, now) => quantile(Number(share), before, now, "nebulaio_s3_request_duration_seconds")))} />
				<Plot title="Bodies by transport" format={bytesPerSecond} ofBytes {...common} lines={moved} />
				<Plot title="Disks" format={bytesPerSecond} ofBytes {...common} lines={[["nebulaio_disk_read_bytes_total", "read"], ["nebulaio_disk_written_bytes_total", "written"]].map(([name, label]) => this.line(label, (before, now) => rate(before, now, name)))} />
				<Plot title="Copies by the processor, per byte of bodies" format={(value) => value.toFixed(2)} {...common} lines={[this.line("copies", copies)]} />
				<Plot title="Memory by owner" format={bytes} ofBytes {...common} lines={owners.map((owner) => this.line(owner, (_, now) => 4096 * sum(now, "nebulaio_region_frames", { owner })))} />
				<Plot title="Cache: chunks found in memory" format={(value) => `${Math.round(value)} %`} {...common} lines={[this.line("hits", hits)]} />
				<Plot title="Scrub" format={bytesPerSecond} ofBytes {...common} lines={[this.line("read", (before, now) => rate(before, now, "nebulaio_store_scrub_bytes_total"))]} />
				<Plot title="Volumes: errors and repairs" format={perSecond} {...common} lines={WRONGS.map(([name, label]) => this.line(label, (before, now) => rate(before, now, name)))} />
				{states.length ? <Plot title="Volumes by state" format={(value) => count(Math.round(value))} {...common} lines={states.map((state) => this.line(state, (_, now) => sum(now, "nebulaio_store_volume_state", { state })))} /> : null}
			</div>
		);
	}

	private rdma(now: Look): JSX.Element {
		const rows: [string, string][] = [
			["Sessions", count(sum(now, "nebulaio_native_sessions"))], ["Queue pairs of tokens", count(sum(now, "nebulaio_token_queue_pairs"))], ["Leases in force", count(sum(now, "nebulaio_leases"))],
			["Sessions so far", count(sum(now, "nebulaio_native_sessions_total", { result: "opened" }))],
			["Work requests that failed", count(sum(now, "nebulaio_rdma_completion_errors_total"))], ["Bytes in queue pairs", bytes(sum(now, "nebulaio_rdma_posted_bytes_total"))],
		];
		return <dl class="facts">{rows.map(([name, value]) => <div><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
	}

	private store(info: Info): JSX.Element {
		const { store } = info;
		const share = store.volume_bytes ? Math.round((100 * store.used_bytes) / store.volume_bytes) : 0;
		return (
			<div>
				<meter {...{ min: 0, max: 100, high: 85 }} value={String(share)} aria-label="Space in use" />
				<dl class="facts">
					<div><dt>In use</dt><dd>{bytes(store.used_bytes)} of {bytes(store.volume_bytes)} ({share} %)</dd></div>
					<div><dt>Objects</dt><dd>{count(store.objects)} in {count(store.buckets)} buckets</dd></div>
					<div><dt>Read cache</dt><dd>{bytes(store.cache_bytes)}</dd></div>
				</dl>
				<ul class="volumes">{info.volumes.map((each, at) => <li>Volume {at} <span class="quiet">{bytes(each.bytes)}</span> <Badge text={each.state} kind={each.state === "good" ? "good" : each.state === "missing" ? "bad" : "warn"} /></li>)}</ul>
			</div>
		);
	}

	private scrubbed(scrub: Scrub): JSX.Element {
		const wrong = scrub.damaged > 0;
		return (
			<div>
				{scrub.running ? <meter {...{ min: 0, max: 100 }} value={String(scrub.all_bytes ? Math.round((100 * scrub.done_bytes) / scrub.all_bytes) : 0)} aria-label="Scrubbed" /> : null}
				<dl class="facts">
					<div><dt>Now</dt><dd>{scrub.running ? `${bytes(scrub.done_bytes)} of ${bytes(scrub.all_bytes)}` : "not running"}</dd></div>
					<div><dt>Completed since the start</dt><dd>{count(scrub.runs)}, {bytes(scrub.bytes)} read</dd></div>
					<div><dt>Damaged, not repaired</dt><dd>{wrong ? <Badge text={count(scrub.damaged)} kind="bad" /> : "none"}</dd></div>
					<div><dt>Repaired</dt><dd>{count(scrub.mended)} of data, {count(scrub.parity_mended)} of parity</dd></div>
				</dl>
				{scrub.running ? null : <Act label="Scrub now" run={async () => { await ask("/admin/v1/scrub", { method: "POST" }); this.poll.begin(); }} />}
			</div>
		);
	}

	private tiles(now: Look): JSX.Element {
		const build = now.samples.find((each) => each.name === "nebulaio_build_info");
		const tiles: [string, string][] = [
			["Version", build?.labels.version ?? ""], ["Running for", uptime(now.at / 1000 - sum(now, "process_start_time_seconds"))],
			["In flight", count(sum(now, "nebulaio_s3_requests_in_flight"))], ["Connections", count(sum(now, "nebulaio_http_connections"))],
			["RDMA sessions", count(sum(now, "nebulaio_native_sessions"))], ["Disk errors", count(sum(now, "nebulaio_disk_errors_total"))],
		];
		return <dl class="tiles">{tiles.map(([name, value]) => <div><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
	}

	render(): JSX.Element {
		const { looks, info, scrub, problem } = this.state;
		const now = looks[looks.length - 1];
		const full = now ? Array.from(by(now, "nebulaio_full_total", "what")).filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]) : [];
		return (
			<section>
				<div class="head"><h1>Health</h1>{now ? <span class="quiet">Every {LOOK_MS / 1000} seconds</span> : null}</div>
				<Problem text={problem} />
				{now ? (
					<div>
						{this.tiles(now)}
						{this.plots()}
						<div class="cards">
							{info ? <Card key="store" title="Store">{this.store(info)}</Card> : null}
							{scrub ? <Card key="scrub" title="Scrub" text="Reads all bodies and compares checksums and parity: once a week by itself.">{this.scrubbed(scrub)}</Card> : null}
							<Card key="rdma" title="RDMA">{this.rdma(now)}</Card>
							<Card key="full" title="Found full since the start" text="What was bounded and full, and how often; the guide to metrics says what then happens.">
								{full.length ? <dl class="facts">{full.map(([what, value]) => <div><dt>{what}</dt><dd>{count(value)}</dd></div>)}</dl> : <p class="quiet">Nothing.</p>}
							</Card>
						</div>
					</div>
				) : problem ? null : <Waiting />}
			</section>
		);
	}
}
