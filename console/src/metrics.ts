// Parses Prometheus' text format, and computes rates and quantiles from two samples. No page here, only numbers.

export interface Sample {
	name: string;
	labels: Record<string, string>;
	value: number;
}

export interface Look {
	at: number;
	samples: Sample[];
}

export function parse(text: string): Sample[] {
	const found: Sample[] = [];
	for (const line of text.split("\n")) {
		const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
		if (!match) continue;
		const labels: Record<string, string> = {};
		const label = /(\w+)="((?:[^"\\]|\\.)*)"/g;
		for (let pair = label.exec(match[2] ?? ""); pair; pair = label.exec(match[2])) labels[pair[1]] = pair[2];
		found.push({ name: match[1], labels, value: Number(match[3]) });
	}
	return found;
}

type Labels = Record<string, string>;

export function sum(look: Look, name: string, labels: Labels = {}): number {
	return look.samples.reduce((total, each) => (each.name === name && Object.keys(labels).every((label) => each.labels[label] === labels[label]) ? total + each.value : total), 0);
}

/** By the values of one label. */
export function by(look: Look, name: string, label: string, labels: Labels = {}): Map<string, number> {
	const found = new Map<string, number>();
	for (const each of look.samples)
		if (each.name === name && Object.keys(labels).every((other) => each.labels[other] === labels[other]))
			found.set(each.labels[label], (found.get(each.labels[label]) ?? 0) + each.value);
	return found;
}

/** The growth of a counter in a second; a restarted server counts from 0. */
export function rate(before: Look, now: Look, name: string, labels: Labels = {}): number {
	const rise = sum(now, name, labels) - sum(before, name, labels);
	return Math.max(rise, 0) / Math.max((now.at - before.at) / 1000, 0.001);
}

/** The quantile of a histogram between two samples, in seconds, as Prometheus estimates it; undefined: no event. */
export function quantile(share: number, before: Look, now: Look, name: string): number | undefined {
	const earlier = by(before, `${name}_bucket`, "le");
	const rises = Array.from(by(now, `${name}_bucket`, "le"), ([le, value]): [number, number] => [le === "+Inf" ? Infinity : Number(le), value - (earlier.get(le) ?? 0)]).sort((a, b) => a[0] - b[0]);
	const total = rises.length ? rises[rises.length - 1][1] : 0;
	if (total <= 0) return undefined;
	let [low, below] = [0, 0];
	for (const [bound, upTo] of rises) {
		if (upTo >= share * total) return bound === Infinity ? low : low + ((bound - low) * (share * total - below)) / Math.max(upTo - below, 1e-9);
		[low, below] = [bound, upTo];
	}
	return low;
}
