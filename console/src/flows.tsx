// The flows of the server's configuration: what each has moved, from the metrics, looked at again and again.
import { Component, h } from "preact";
import { Look, by, quantile, rate } from "./metrics";
import { Poll, look } from "./poll";
import { Badge, Empty, Problem, Waiting, bytes, count } from "./ui";

const micros = (seconds: number | undefined): string => (seconds === undefined ? "" : seconds < 0.001 ? `${Math.round(seconds * 1e6)} µs` : `${(seconds * 1000).toFixed(1)} ms`);

export class Flows extends Component<{ key?: string }, { before?: Look; now?: Look; problem?: string }> {
	state = { before: undefined as Look | undefined, now: undefined as Look | undefined, problem: undefined as string | undefined };
	private readonly poll = new Poll(look, (now) => this.setState({ before: this.state.now, now, problem: undefined }), (problem) => this.setState({ problem }));

	componentDidMount(): void {
		this.poll.begin();
	}

	componentWillUnmount(): void {
		this.poll.end();
	}

	private row(name: string, now: Look, before?: Look): JSX.Element {
		const total = (metric: string): number => by(now, metric, "flow").get(name) ?? 0;
		const running = total("nebulaio_flow_running") > 0;
		const own = (look: Look): Look => ({ ...look, samples: look.samples.filter((each) => each.labels.flow === name) });
		const [starts, failures] = [total("nebulaio_flow_starts_total"), total("nebulaio_flow_failures_total")];
		return (
			<tr key={name}>
				<td class="long">{name}</td>
				<td><Badge text={running ? "runs" : "does not run"} kind={running ? "good" : "bad"} /></td>
				<td class="number">{bytes(total("nebulaio_flow_bytes_total"))}<br /><span class="quiet">{before ? `${bytes(rate(before, now, "nebulaio_flow_bytes_total", { flow: name }))}/s` : ""}</span></td>
				<td class="number">{count(total("nebulaio_flow_packets_total"))}<br /><span class="quiet">{count(total("nebulaio_flow_lost_packets_total"))} lost</span></td>
				<td class="number">{count(total("nebulaio_flow_bodies_total"))}</td>
				<td class="number">{before ? micros(quantile(0.99, own(before), own(now), "nebulaio_flow_latency_seconds")) : ""}</td>
				<td class="number">{count(starts)}<br /><span class="quiet">{count(failures)} failed</span></td>
			</tr>
		);
	}

	render(): JSX.Element {
		const { before, now, problem } = this.state;
		const names = now ? Array.from(by(now, "nebulaio_flow_running", "flow").keys()).sort() : [];
		return (
			<div>
				<Problem text={problem} />
				{!now ? (problem ? null : <Waiting />) : !names.length ? (
					<Empty icon="link" title="No flows"><p>The configuration has none (<code>flows:</code>). A flow moves packets, RDMA streams, disks' bytes and objects from one to another.</p></Empty>
				) : (
					<div class="scroll"><table>
						<caption>{names.length} of the configuration</caption>
						<thead><tr><th scope="col">Flow</th><th scope="col">State</th><th scope="col" class="number">Moved</th><th scope="col" class="number">Packets</th><th scope="col" class="number">Objects or files</th><th scope="col" class="number">p99 to durable</th><th scope="col" class="number">Starts</th></tr></thead>
						<tbody>{names.map((name) => this.row(name, now, before))}</tbody>
					</table></div>
				)}
			</div>
		);
	}
}
