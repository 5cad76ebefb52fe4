// A plot of a few lines over the last minutes.
import { Component, h } from "preact";

export interface Line {
	label: string;
	/** One for each sample; undefined: no value. */
	values: (number | undefined)[];
}

interface Props {
	title: string;
	lines: Line[];
	format: (value: number) => string;
	ofBytes?: boolean;
	/** The time that the samples cover, in seconds. */
	seconds: number;
	/** The number of samples that fill the width. */
	places: number;
}

const WIDTH = 600;
const HEIGHT = 150;

/** A round number that is not smaller: 1, 2 or 5 times a power of ten; of bytes, a power of two. */
function ceiling(value: number, ofBytes?: boolean): number {
	if (value <= 0) return 1;
	if (ofBytes) return 2 ** Math.ceil(Math.log2(value));
	const power = 10 ** Math.floor(Math.log10(value));
	return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value * 0.999) ?? value;
}

function track(values: (number | undefined)[], top: number, places: number): string {
	const step = WIDTH / (places - 1);
	const begin = WIDTH - (values.length - 1) * step;
	let pen = "M";
	return values.map((value, at) => {
		if (value === undefined) {
			pen = "M";
			return "";
		}
		const point = `${pen}${(begin + at * step).toFixed(1)},${(HEIGHT - (Math.min(value, top) / top) * HEIGHT).toFixed(1)}`;
		pen = "L";
		return point;
	}).join("");
}

export class Plot extends Component<Props, {}> {
	render(): JSX.Element {
		const { props } = this;
		const top = ceiling(Math.max(0, ...props.lines.map((line) => Math.max(0, ...line.values.map((value) => value ?? 0)))), props.ofBytes);
		const latest = (line: Line): string => {
			const value = line.values[line.values.length - 1];
			return value === undefined ? "–" : props.format(value);
		};
		return (
			<figure class="plot">
				<figcaption>{props.title}</figcaption>
				<div class="area">
					<svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`${props.title}: ${props.lines.map((line) => `${line.label} ${latest(line)}`).join(", ")}`}>
						{[0, 0.5, 1].map((share) => <line class="grid" x1="0" x2={String(WIDTH)} y1={String(share * HEIGHT)} y2={String(share * HEIGHT)} />)}
						{props.lines.map((line, at) => <path class={`line-${(at % 5) + 1}`} d={track(line.values, top, props.places)} />)}
					</svg>
					<span class="top">{props.format(top)}</span>
					<span class="since">{Math.round(props.seconds / 60)} minutes ago</span>
					<span class="now">now</span>
				</div>
				<ul>{props.lines.map((line, at) => <li><span class={`dot line-${(at % 5) + 1}`} />{line.label}<b>{latest(line)}</b></li>)}</ul>
			</figure>
		);
	}
}
