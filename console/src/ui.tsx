// The parts that pages are made of.
import { Component, h } from "preact";
import { Failure } from "./api";

type Child = JSX.Element | string | number | null | undefined | false | Child[];

/* ---- Words and numbers. ---- */

export function bytes(value: number): string {
	const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
	let unit = 0;
	while (value >= 1024 && unit < units.length - 1) {
		value /= 1024;
		unit++;
	}
	return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function count(value: number): string {
	return value.toLocaleString("en");
}

export function when(value: string | number): string {
	const date = new Date(value);
	if (isNaN(date.getTime())) return "";
	const two = (number: number): string => String(number).padStart(2, "0");
	return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

export function many(number: number, one: string): string {
	return `${count(number)} ${one}${number === 1 ? "" : "s"}`;
}

export function told(error: unknown): string {
	if (!(error instanceof Error)) return String(error);
	return error instanceof Failure && error.code === "AccessDenied" ? "Your policies do not allow this." : error.message;
}

/* ---- Icons. ---- */

const PATHS = {
	bucket: "M4 6h16l-1.6 13.2a1 1 0 0 1-1 .8H6.6a1 1 0 0 1-1-.8zM4 6c0-1.1 3.6-2 8-2s8 .9 8 2",
	folder: "M3 6.5A1.5 1.5 0 0 1 4.5 5h4.4l2 2.5h8.6A1.5 1.5 0 0 1 21 9v8.5a1.5 1.5 0 0 1-1.5 1.5h-15A1.5 1.5 0 0 1 3 17.5z",
	file: "M6 3h8l5 5v12a1 1 0 0 1-1 1H6a1 1 0 0 1-1-1V4a1 1 0 0 1 1-1zM14 3v5h5",
	people: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.5 20c0-3.3 2.9-5.5 6.5-5.5s6.5 2.2 6.5 5.5M16 4.3a3.5 3.5 0 0 1 0 6.4M18 14.9c2.1.8 3.5 2.6 3.5 5.1",
	chart: "M4 4v16h16M8 15l3.5-4.5 3 2.5L19 7",
	upload: "M12 16V5M7.5 9 12 4.5 16.5 9M4.5 16v3a1 1 0 0 0 1 1h13a1 1 0 0 0 1-1v-3",
	download: "M12 4v11M7.5 11 12 15.5 16.5 11M4.5 16v3a1 1 0 0 0 1 1h13a1 1 0 0 0 1-1v-3",
	bin: "M5 7h14M10 7V4.5h4V7M7 7l.8 12.5h8.4L17 7M10.5 10.5v5.5M13.5 10.5v5.5",
	close: "M6 6l12 12M18 6 6 18",
	gear: "M12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM12 3v3M12 18v3M3 12h3M18 12h3M5.6 5.6l2.2 2.2M16.2 16.2l2.2 2.2M18.4 5.6l-2.2 2.2M7.8 16.2l-2.2 2.2",
	link: "M10 14a4 4 0 0 0 5.7 0l3-3a4 4 0 0 0-5.7-5.7l-1 1M14 10a4 4 0 0 0-5.7 0l-3 3a4 4 0 0 0 5.7 5.7l1-1",
	plus: "M12 5v14M5 12h14",
	leave: "M14 4h4a1 1 0 0 1 1 1v14a1 1 0 0 1-1 1h-4M10 8l-4 4 4 4M6 12h9",
	moon: "M20 14.5A8 8 0 0 1 9.5 4a8 8 0 1 0 10.5 10.5z",
	up: "M12 19V6M6.5 11 12 5.5 17.5 11",
};
export type IconName = keyof typeof PATHS;

export function Icon(props: { name: IconName }): JSX.Element {
	return <svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d={PATHS[props.name]} /></svg>;
}

/* ---- Buttons and fields. ---- */

interface ButtonProps {
	label: string;
	icon?: IconName;
	kind?: "primary" | "danger" | "quiet";
	/** Only the icon is shown. */
	bare?: boolean;
	disabled?: boolean;
	submit?: boolean;
	pressed?: boolean;
	onClick?: (event: Event) => void;
}

export function Button(props: ButtonProps): JSX.Element {
	return (
		<button type={props.submit ? "submit" : "button"} class={`button ${props.kind ?? ""} ${props.bare ? "bare" : ""}`} disabled={props.disabled}
			aria-label={props.bare ? props.label : undefined} title={props.bare ? props.label : undefined} aria-pressed={props.pressed === undefined ? undefined : String(props.pressed)}
			onClick={props.onClick}>
			{props.icon ? <Icon name={props.icon} /> : null}
			{props.bare ? null : <span>{props.label}</span>}
		</button>
	);
}

interface FieldProps {
	id: string;
	label: string;
	value: string;
	onValue: (value: string) => void;
	type?: string;
	hint?: string;
	rows?: number;
	options?: [string, string][];
	required?: boolean;
	autocomplete?: string;
	focus?: boolean;
	list?: string[];
}

export class Field extends Component<FieldProps, {}> {
	private element?: HTMLElement;

	componentDidMount(): void {
		if (this.props.focus) this.element?.focus();
	}

	render(): JSX.Element {
		const { props } = this;
		const take = (event: Event): void => props.onValue((event.target as HTMLInputElement).value);
		const common = {
			id: props.id, value: props.value, spellcheck: false, autocapitalize: "off", autofocus: props.focus, required: props.required, "aria-describedby": props.hint ? props.id + "-hint" : undefined,
			ref: (element?: Element) => { this.element = element as HTMLElement | undefined; },
		};
		return (
			<div class="field">
				<label for={props.id}>{props.label}</label>
				{props.options ? <select {...common} onChange={take}>{props.options.map(([value, label]) => <option value={value} selected={value === props.value}>{label}</option>)}</select>
					: props.rows ? <textarea {...common} rows={props.rows} onInput={take} />
					: <input {...common} type={props.type ?? "text"} autocomplete={props.autocomplete ?? "off"} onInput={take}
						list={props.list ? props.id + "-list" : undefined} />}
				{props.list ? <datalist id={props.id + "-list"}>{props.list.map((each) => <option value={each} />)}</datalist> : null}
				{props.hint ? <p class="hint" id={props.id + "-hint"}>{props.hint}</p> : null}
			</div>
		);
	}
}

export function Check(props: { id: string; label: string; checked: boolean; disabled?: boolean; hidden?: boolean; onValue: (checked: boolean) => void }): JSX.Element {
	return (
		<label class="check" for={props.id}>
			<input id={props.id} type="checkbox" checked={props.checked} disabled={props.disabled} onChange={(event) => props.onValue((event.target as HTMLInputElement).checked)} />
			<span class={props.hidden ? "unseen" : ""}>{props.label}</span>
		</label>
	);
}

export function Problem(props: { text?: string }): JSX.Element {
	return <div class={props.text ? "problem" : "problem none"} role="alert">{props.text ?? ""}</div>;
}

export function Empty(props: { icon: IconName; title: string; children?: Child }): JSX.Element {
	return <div class="empty"><Icon name={props.icon} /><p class="title">{props.title}</p>{props.children}</div>;
}

export function Waiting(): JSX.Element {
	return <p class="waiting" role="status">Loading…</p>;
}

export function Badge(props: { text: string; kind?: "good" | "bad" | "warn" }): JSX.Element {
	return <span class={`badge ${props.kind ?? ""}`}>{props.text}</span>;
}

/* ---- Dialogs. ---- */

interface DialogProps {
	title: string;
	wide?: boolean;
	onClose: () => void;
	children?: Child;
}

/** The browser's own: it keeps the keyboard inside, closes at Escape and gives the focus back. */
export class Dialog extends Component<DialogProps, {}> {
	private element?: HTMLDialogElement;

	componentDidMount(): void {
		this.element?.showModal();
		this.element?.addEventListener("cancel", (event) => {
			event.preventDefault();
			this.props.onClose();
		});
	}

	componentWillUnmount(): void {
		this.element?.close();
	}

	render(): JSX.Element {
		const { props } = this;
		return (
			<dialog class={props.wide ? "wide" : ""} aria-labelledby="dialog-title" ref={(element?: Element) => { this.element = element as HTMLDialogElement | undefined; }}>
				<header>
					<h2 id="dialog-title">{props.title}</h2>
					<Button label="Close" icon="close" kind="quiet" bare onClick={props.onClose} />
				</header>
				{(props as { children?: Child }).children}
			</dialog>
		);
	}
}

interface FormProps {
	title: string;
	/** The word on its button. */
	verb: string;
	danger?: boolean;
	wide?: boolean;
	onDone: () => void;
	run: () => Promise<void>;
	children?: Child;
}

/** A dialog with an action; it shows the reason of a failure. */
export class FormDialog extends Component<FormProps, { busy?: boolean; problem?: string }> {
	private async submit(event: Event): Promise<void> {
		event.preventDefault();
		this.setState({ busy: true, problem: undefined });
		try {
			await this.props.run();
			this.props.onDone();
		} catch (error) {
			this.setState({ busy: false, problem: told(error) });
		}
	}

	render(): JSX.Element {
		const { props, state } = this;
		return (
			<Dialog title={props.title} wide={props.wide} onClose={props.onDone}>
				<form onSubmit={(event) => void this.submit(event)}>
					<div class="body">{(props as { children?: Child }).children}</div>
					<Problem text={state.problem} />
					<footer>
						<Button label="Cancel" onClick={props.onDone} />
						<Button label={props.verb} kind={props.danger ? "danger" : "primary"} submit disabled={state.busy} />
					</footer>
				</form>
			</Dialog>
		);
	}
}

/** A text that is copied by a click. */
export class Copy extends Component<{ text: string; label: string }, { copied?: boolean }> {
	private code?: Element;

	render(): JSX.Element {
		const { props, state } = this;
		const copy = (): void => {
			if (!this.code) return;
			// Without TLS there is no navigator.clipboard.
			getSelection()?.selectAllChildren(this.code);
			if (document.execCommand("copy")) this.setState({ copied: true });
		};
		return (
			<div class="copy">
				<code tabIndex={0} ref={(element?: Element) => { this.code = element; }}>{props.text}</code>
				<Button label={state.copied ? "Copied" : props.label} onClick={copy} />
			</div>
		);
	}
}

/* ---- JSON. ---- */

interface JsonProps {
	id: string;
	label: string;
	value: string;
	rows?: number;
	onValue: (value: string) => void;
}

/** The fault of a text as JSON; undefined: none. */
export function jsonProblem(value: string): string | undefined {
	try {
		const parsed = JSON.parse(value) as unknown;
		return parsed && typeof parsed === "object" && !Array.isArray(parsed) ? undefined : "This must be a JSON object: {…}";
	} catch (error) {
		return (error as Error).message;
	}
}

export function pretty(value: string): string {
	try {
		return JSON.stringify(JSON.parse(value), null, 2);
	} catch {
		return value;
	}
}

/** An editor that reports invalid JSON at once; the server checks the meaning. */
export function JsonField(props: JsonProps): JSX.Element {
	const problem = props.value.trim() ? jsonProblem(props.value) : undefined;
	return (
		<div>
			<Field id={props.id} label={props.label} value={props.value} rows={props.rows ?? 14} onValue={props.onValue} />
			<p class={problem ? "hint wrong" : "hint"} role="status">{props.value.trim() ? problem ?? "This is JSON." : "Empty."}</p>
		</div>
	);
}

/* ---- A part of a page with its own saving. ---- */

interface CardProps {
	key?: string;
	title: string;
	text?: string;
	children?: Child;
}

export function Card(props: CardProps): JSX.Element {
	return (
		<section class="card">
			<h2>{props.title}</h2>
			{props.text ? <p class="quiet">{props.text}</p> : null}
			{props.children}
		</section>
	);
}

/** A button that acts at once, and shows the reason of a failure beside it. */
export class Act extends Component<{ label: string; kind?: "primary" | "danger" | "quiet"; icon?: IconName; bare?: boolean; disabled?: boolean; run: () => Promise<void> }, { busy?: boolean; problem?: string }> {
	private async run(): Promise<void> {
		this.setState({ busy: true, problem: undefined });
		try {
			await this.props.run();
			this.setState({ busy: false });
		} catch (error) {
			this.setState({ busy: false, problem: told(error) });
		}
	}

	render(): JSX.Element {
		const { props, state } = this;
		return (
			<span class="act">
				<Button label={props.label} kind={props.kind} icon={props.icon} bare={props.bare} disabled={props.disabled || state.busy} onClick={() => void this.run()} />
				{state.problem ? <span class="problem" role="alert">{state.problem}</span> : null}
			</span>
		);
	}
}

/* ---- Loaded contents. ---- */

interface LoadedProps<T> {
	/** Loads anew when it changes. */
	of: string;
	load: () => Promise<T>;
	show: (value: T, again: () => void) => JSX.Element;
}

export class Loaded<T> extends Component<LoadedProps<T>, { got?: { value: T }; problem?: string }> {
	private gone = false;

	componentDidMount(): void {
		void this.load(this.props);
	}

	componentWillReceiveProps(next: LoadedProps<T>): void {
		if (next.of === this.props.of) return;
		this.setState({ got: undefined, problem: undefined });
		void this.load(next);
	}

	componentWillUnmount(): void {
		this.gone = true;
	}

	private async load(props: LoadedProps<T>): Promise<void> {
		const wanted = props.of;
		try {
			const value = await props.load();
			if (!this.gone && wanted === this.props.of) this.setState({ got: { value }, problem: undefined });
		} catch (error) {
			if (!this.gone && wanted === this.props.of) this.setState({ problem: told(error) });
		}
	}

	render(): JSX.Element {
		const { props, state } = this;
		if (state.problem) return <Problem text={state.problem} />;
		return state.got ? props.show(state.got.value, () => void this.load(this.props)) : <Waiting />;
	}
}
