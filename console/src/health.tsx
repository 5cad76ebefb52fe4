// The server's health, polled while the page is open.
import { Component, h } from "preact";
import { ask, json } from "./api";
import { Look, by, parse, quantile, rate, sum } from "./metrics";
import { Line, Plot } from "./plot";
import { Badge, Card, Problem, Waiting, bytes, count, told } from "./ui";

const LOOK_MS = 2000;
const LOOKS_MAX = 150;

interface Info {
	accounts: number;
	store: { volume_bytes: number; used_bytes: number; free_bytes: number; objects: number; buckets: number; cache_bytes: number; log_bytes: number };
	volumes: { state: string; bytes: number }[];
}

interface State {
	looks: Look[];
	info?: Info;
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

export class Health extends Component<{}, State> {
	state: State = { looks: [] };
	private timer = 0;
	private gone = false;

	componentDidMount(): void {
		void this.look();
	}

	componentWillUnmount(): void {
		this.gone = true;
		clearTimeout(this.timer);
	}

	private async look(): Promise<void> {
		try {
			const poll = this.state.looks.length > 0;
			const samples = parse(await (await ask("/metrics", { poll })).text());
			// The server reports volumes and sizes to its root only.
			const info = await json<Info>("/admin/v1/info", { poll: true }).catch(() => undefined);
			if (this.gone) return;
			this.setState({ info, problem: undefined, looks: [...this.state.looks, { at: Date.now(), samples }].slice(-LOOKS_MAX) });
		} catch (error) {
			if (this.gone) return;
			this.setState({ problem: told(error) });
			// A user without the right to see the metrics is refused again, so polling ends.
			if (!this.state.looks.length) return;
		}
		this.timer = window.setTimeout(() => void this.look(), LOOK_MS);
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
		const owners = this.names("nebulaio_region_frames", "owner").filter((owner) => owner !== "free").slice(0, 5);
		return (
			<div class="plots">
				<Plot title="Requests" format={perSecond} {...common} lines={[["2xx", "done"], ["4xx", "refused"], ["5xx", "failed"]].map(([status, label]) => this.line(label, (before, now) => rate(before, now, "nebulaio_s3_requests_total", { status })))} />
				<Plot title="Latency" format={duration} {...common} lines={[[0.5, "p50"], [0.99, "p99"]].map(([share, label]) => this.line(String(label), (before, now) => quantile(Number(share), before, now, "nebulaio_s3_request_duration_seconds")))} />
				<Plot title="Bodies by transport" format={bytesPerSecond} ofBytes {...common} lines={moved} />
				<Plot title="Disks" format={bytesPerSecond} ofBytes {...common} lines={[["nebulaio_disk_read_bytes_total", "read"], ["nebulaio_disk_written_bytes_total", "written"]].map(([name, label]) => this.line(label, (before, now) => rate(before, now, name)))} />
				<Plot title="Memory by owner" format={bytes} ofBytes {...common} lines={owners.map((owner) => this.line(owner, (_, now) => 4096 * sum(now, "nebulaio_region_frames", { owner })))} />
				<Plot title="Cache: chunks found in memory" format={(value) => `${Math.round(value)} %`} {...common} lines={[this.line("hits", hits)]} />
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
		const { looks, info, problem } = this.state;
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
