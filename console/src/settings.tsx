// The settings of one bucket. Settings for which the page has no form stay unchanged.
import { Component, h } from "preact";
import { all, ask, escape, first, optional, parseXml, path, text, xml } from "./api";
import { Quota } from "./quota";
import { Tags } from "./tags";
import { Act, Badge, Button, Card, Field, JsonField, Loaded, Problem, jsonProblem, pretty, told } from "./ui";

interface Props {
	key?: string;
	bucket: string;
}

function read(bucket: string, what: string): Promise<Element | null> {
	return optional(xml(`${path(bucket)}?${what}`)).then((root) => root ?? null);
}

async function write(bucket: string, what: string, body: string): Promise<void> {
	await ask(`${path(bucket)}?${what}`, { method: "PUT", body });
}

async function remove(bucket: string, what: string): Promise<void> {
	await ask(`${path(bucket)}?${what}`, { method: "DELETE" });
}

const source = (element: Element): string => new XMLSerializer().serializeToString(element);

/* ---- One switch each. ---- */

function Versioning({ bucket }: Props): JSX.Element {
	const show = (root: Element | null, again: () => void): JSX.Element => {
		const status = text(root ?? undefined, "Status");
		const set = (next: string) => async (): Promise<void> => {
			await write(bucket, "versioning", `<VersioningConfiguration><Status>${next}</Status></VersioningConfiguration>`);
			again();
		};
		return (
			<p class="line">
				<Badge text={status || "Off"} kind={status === "Enabled" ? "good" : undefined} />
				{status === "Enabled" ? <Act label="Suspend" run={set("Suspended")} /> : <Act label="Enable" run={set("Enabled")} />}
			</p>
		);
	};
	return <Card title="Versions" text="With versions, an object that is overwritten or deleted can be restored."><Loaded of={bucket} load={() => read(bucket, "versioning")} show={show} /></Card>;
}

function Encryption({ bucket }: Props): JSX.Element {
	const show = (root: Element | null, again: () => void): JSX.Element => {
		const kind = text(root ?? undefined, "Rule/ApplyServerSideEncryptionByDefault/SSEAlgorithm");
		const on = async (): Promise<void> => {
			await write(bucket, "encryption", "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES256</SSEAlgorithm></ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>");
			again();
		};
		const off = async (): Promise<void> => {
			await remove(bucket, "encryption");
			again();
		};
		return <p class="line"><Badge text={kind || "Off"} kind={kind ? "good" : undefined} />{kind ? <Act label="Switch off" run={off} /> : <Act label="Encrypt new objects" run={on} />}</p>;
	};
	return <Card title="Encryption" text="How new objects are encrypted at rest when their upload names no way."><Loaded of={bucket} load={() => read(bucket, "encryption")} show={show} /></Card>;
}

const BLOCKS = ["BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"];

function PublicAccess({ bucket }: Props): JSX.Element {
	const show = (root: Element | null, again: () => void): JSX.Element => {
		const on = BLOCKS.filter((each) => text(root ?? undefined, each) === "true").length;
		const set = (blocked: boolean) => async (): Promise<void> => {
			await write(bucket, "publicAccessBlock", `<PublicAccessBlockConfiguration>${BLOCKS.map((each) => `<${each}>${String(blocked)}</${each}>`).join("")}</PublicAccessBlockConfiguration>`);
			again();
		};
		return (
			<p class="line">
				<Badge text={on === BLOCKS.length ? "Blocked" : on ? "Blocked in part" : "Possible"} kind={on === BLOCKS.length ? "good" : "warn"} />
				{on === BLOCKS.length ? <Act label="Allow public policies and lists" kind="danger" run={set(false)} /> : <Act label="Block" run={set(true)} />}
			</p>
		);
	};
	return <Card title="Public access" text="Blocked: neither a policy nor an access control list lets in anybody without keys."><Loaded of={bucket} load={() => read(bucket, "publicAccessBlock")} show={show} /></Card>;
}

/* ---- The policy. ---- */

const EXAMPLE = (bucket: string): string => JSON.stringify({
	Version: "2012-10-17",
	Statement: [{ Effect: "Allow", Principal: { AWS: "arn:aws:iam::111122223333:user/reader" }, Action: ["s3:ListBucket", "s3:GetObject"], Resource: [`arn:aws:s3:::${bucket}`, `arn:aws:s3:::${bucket}/*`] }],
}, null, 2);

interface PolicyState {
	value: string;
	problem?: string;
	saved?: boolean;
}

class PolicyEditor extends Component<Props & { value: string; again: () => void }, PolicyState> {
	state: PolicyState = { value: pretty(this.props.value) };

	private async save(): Promise<void> {
		try {
			await ask(`${path(this.props.bucket)}?policy`, { method: "PUT", body: this.state.value, headers: { "Content-Type": "application/json" } });
			this.setState({ problem: undefined, saved: true });
		} catch (error) {
			this.setState({ problem: told(error), saved: false });
		}
	}

	render(): JSX.Element {
		const { props, state } = this;
		return (
			<form onSubmit={(event) => { event.preventDefault(); void this.save(); }}>
				<JsonField id="policy" label="Document" rows={props.value ? 16 : 8} value={state.value} onValue={(value) => this.setState({ value, saved: false })} />
				<Problem text={state.problem} />
				{state.saved ? <p class="notice" role="status">The policy is in force.</p> : null}
				<p class="line">
					<Button label="Save" kind="primary" submit disabled={!state.value.trim() || !!jsonProblem(state.value)} />
					{state.value.trim() ? <Button label="Format" onClick={() => this.setState({ value: pretty(state.value) })} /> : <Button label="Begin with an example" onClick={() => this.setState({ value: EXAMPLE(props.bucket) })} />}
					{props.value ? <Act label="Delete" kind="danger" run={async () => { await remove(props.bucket, "policy"); props.again(); }} /> : null}
				</p>
			</form>
		);
	}
}

function Policy({ bucket }: Props): JSX.Element {
	const load = async (): Promise<string> => (await optional(ask(`${path(bucket)}?policy`).then((answer) => answer.text()))) ?? "";
	return <Card title="Policy" text="Who may do what with this bucket, beside the policies of users and groups."><Loaded of={bucket} load={load} show={(value: string, again) => <PolicyEditor key={value} bucket={bucket} value={value} again={again} />} /></Card>;
}

/* ---- Rules of the lifecycle and of CORS. An existing rule stays unchanged until it is removed. ---- */

interface RulesProps {
	bucket: string;
	what: string;
	outer: string;
	rules: Element[];
	again: () => void;
	describe: (rule: Element) => string;
	/** Fields of a new rule, and its XML. */
	fields: { id: string; label: string; type?: string; hint?: string }[];
	make: (values: Record<string, string>) => string;
}
interface RulesState {
	values: Record<string, string>;
	problem?: string;
}

class Rules extends Component<RulesProps, RulesState> {
	state: RulesState = { values: {} };

	private async save(rules: string[]): Promise<void> {
		const { bucket, what, outer, again } = this.props;
		try {
			if (rules.length) await write(bucket, what, `<${outer} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">${rules.join("")}</${outer}>`);
			else await remove(bucket, what);
			this.setState({ values: {}, problem: undefined });
			again();
		} catch (error) {
			this.setState({ problem: told(error) });
		}
	}

	private add(event: Event): void {
		event.preventDefault();
		void this.save([...this.props.rules.map(source), this.props.make(this.state.values)]);
	}

	render(): JSX.Element {
		const { props, state } = this;
		return (
			<div>
				{props.rules.length ? <ul class="rules">{props.rules.map((rule, at) => (
					<li><span class="long">{props.describe(rule)}</span><Button label={`Remove: ${props.describe(rule)}`} icon="bin" kind="quiet" bare onClick={() => void this.save(props.rules.filter((_, other) => other !== at).map(source))} /></li>
				))}</ul> : <p class="quiet">No rules.</p>}
				<form onSubmit={(event) => this.add(event)}>
					<div class="row upper">
						{props.fields.map((each) => <Field key={each.id} id={`${props.what}-${each.id}`} label={each.label} type={each.type} hint={each.hint} value={state.values[each.id] ?? ""} onValue={(value) => this.setState({ values: { ...this.state.values, [each.id]: value } })} />)}
					</div>
					<Problem text={state.problem} />
					<Button label="Add rule" icon="plus" submit disabled={!Object.keys(state.values).some((id) => state.values[id])} />
				</form>
			</div>
		);
	}
}

function lifecycleText(rule: Element): string {
	const prefix = text(rule, "Filter/Prefix") || text(rule, "Filter/And/Prefix") || text(rule, "Prefix");
	const days = (element: string, what: string, name = "Days"): string => (text(rule, `${element}/${name}`) ? `${what} after ${text(rule, `${element}/${name}`)} days` : "");
	const parts = [days("Expiration", "expire"), text(rule, "Expiration/Date") && `expire on ${text(rule, "Expiration/Date").slice(0, 10)}`, text(rule, "Expiration/ExpiredObjectDeleteMarker") === "true" && "remove lone delete markers",
		days("NoncurrentVersionExpiration", "delete older versions", "NoncurrentDays"), days("AbortIncompleteMultipartUpload", "end unfinished uploads", "DaysAfterInitiation")].filter((each) => each);
	const other = all(first(rule, "Filter"), "Tag").length || first(rule, "Filter/And") ? ", by its filter" : "";
	return `${prefix ? `“${prefix}…”` : "All objects"}${other}: ${parts.join(", ") || "another rule"}${text(rule, "Status") === "Enabled" ? "" : " (off)"}`;
}

function lifecycleRule(values: Record<string, string>): string {
	const number = (element: string, name: string, value?: string): string => (value ? `<${element}><${name}>${escape(value)}</${name}></${element}>` : "");
	return `<Rule><Filter><Prefix>${escape(values.prefix ?? "")}</Prefix></Filter><Status>Enabled</Status>${number("Expiration", "Days", values.days)}${number("NoncurrentVersionExpiration", "NoncurrentDays", values.older)}${number("AbortIncompleteMultipartUpload", "DaysAfterInitiation", values.uploads)}</Rule>`;
}

function Lifecycle({ bucket }: Props): JSX.Element {
	const show = (root: Element | null, again: () => void): JSX.Element => (
		<Rules bucket={bucket} what="lifecycle" outer="LifecycleConfiguration" rules={all(root ?? undefined, "Rule")} again={again} describe={lifecycleText} make={lifecycleRule}
			fields={[{ id: "prefix", label: "Begins with", hint: "Empty: all" }, { id: "days", label: "Expire after days", type: "number" }, { id: "older", label: "Old versions, days", type: "number" }, { id: "uploads", label: "Unfinished uploads, days", type: "number" }]} />
	);
	return <Card title="Lifecycle" text="What is deleted by itself as it grows old."><Loaded of={bucket} load={() => read(bucket, "lifecycle")} show={show} /></Card>;
}

function corsRule(values: Record<string, string>): string {
	const list = (element: string, value = ""): string => value.split(",").map((each) => each.trim()).filter((each) => each).map((each) => `<${element}>${escape(each)}</${element}>`).join("");
	return `<CORSRule>${list("AllowedOrigin", values.origins)}${list("AllowedMethod", values.methods || "GET, HEAD")}${list("AllowedHeader", values.headers)}</CORSRule>`;
}

function corsText(rule: Element): string {
	const words = (element: string): string => all(rule, element).map((each) => each.textContent).join(", ");
	return `${words("AllowedOrigin")}: ${words("AllowedMethod")}${words("AllowedHeader") ? `, with headers ${words("AllowedHeader")}` : ""}`;
}

function Cors({ bucket }: Props): JSX.Element {
	const show = (root: Element | null, again: () => void): JSX.Element => (
		<Rules bucket={bucket} what="cors" outer="CORSConfiguration" rules={all(root ?? undefined, "CORSRule")} again={again} describe={corsText} make={corsRule}
			fields={[{ id: "origins", label: "Origins", hint: "https://app.example.com, …" }, { id: "methods", label: "Methods", hint: "Empty: GET, HEAD" }, { id: "headers", label: "Headers", hint: "Or *" }]} />
	);
	return <Card title="Cross-origin requests" text="Which other sites' pages may ask for objects of this bucket (CORS)."><Loaded of={bucket} load={() => read(bucket, "cors")} show={show} /></Card>;
}

/* ---- Object lock. ---- */

class LockEditor extends Component<Props & { mode: string; days: string; again: () => void }, { mode: string; days: string; problem?: string }> {
	state = { mode: this.props.mode, days: this.props.days, problem: undefined as string | undefined };

	private async save(): Promise<void> {
		const { mode, days } = this.state;
		const rule = mode ? `<Rule><DefaultRetention><Mode>${mode}</Mode><Days>${escape(days)}</Days></DefaultRetention></Rule>` : "";
		try {
			await write(this.props.bucket, "object-lock", `<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>${rule}</ObjectLockConfiguration>`);
			this.setState({ problem: undefined });
			this.props.again();
		} catch (error) {
			this.setState({ problem: told(error) });
		}
	}

	render(): JSX.Element {
		const { state } = this;
		const modes: [string, string][] = [["", "No default"], ["GOVERNANCE", "Governance: some may lift it"], ["COMPLIANCE", "Compliance: nobody may"]];
		return (
			<form onSubmit={(event) => { event.preventDefault(); void this.save(); }}>
				<div class="row">
					<Field id="lock-mode" label="Default retention" value={state.mode} options={modes} onValue={(mode) => this.setState({ mode })} />
					<Field id="lock-days" label="Days" type="number" value={state.days} required={!!state.mode} onValue={(days) => this.setState({ days })} />
					<Button label="Save" submit />
				</div>
				<Problem text={state.problem} />
			</form>
		);
	}
}

function Lock({ bucket }: Props): JSX.Element {
	const show = (root: Element | null, again: () => void): JSX.Element => {
		if (text(root ?? undefined, "ObjectLockEnabled") !== "Enabled") return <p class="quiet">Off. A bucket gets it when it is created.</p>;
		return <LockEditor bucket={bucket} mode={text(root ?? undefined, "Rule/DefaultRetention/Mode")} days={text(root ?? undefined, "Rule/DefaultRetention/Days")} again={again} />;
	};
	return <Card title="Object lock" text="Versions that nobody deletes before their time."><Loaded of={bucket} load={() => read(bucket, "object-lock")} show={show} /></Card>;
}

/* ---- Notification: as XML. ---- */

class XmlEditor extends Component<Props & { value: string }, { value: string; problem?: string; saved?: boolean }> {
	state = { value: this.props.value, problem: undefined as string | undefined, saved: false };

	private async save(): Promise<void> {
		try {
			await write(this.props.bucket, "notification", this.state.value);
			this.setState({ problem: undefined, saved: true });
		} catch (error) {
			this.setState({ problem: told(error), saved: false });
		}
	}

	render(): JSX.Element {
		const { state } = this;
		const well = !!parseXml(state.value);
		return (
			<form onSubmit={(event) => { event.preventDefault(); void this.save(); }}>
				<Field id="notification" label="NotificationConfiguration" rows={8} value={state.value} onValue={(value) => this.setState({ value, saved: false })} />
				<p class={well ? "hint" : "hint wrong"} role="status">{well ? "This is XML." : "This is no XML."}</p>
				<Problem text={state.problem} />
				{state.saved ? <p class="notice" role="status">The configuration is in force.</p> : null}
				<Button label="Save" submit disabled={!well} />
			</form>
		);
	}
}

function Notification({ bucket }: Props): JSX.Element {
	const lines = (root: Element | null): string => (root ? source(root).replace(/></g, ">\n<") : "<NotificationConfiguration/>");
	return <Card title="Notification" text="Where events of this bucket go, as S3 writes it. The server's targets are in its own configuration."><Loaded of={bucket} load={() => read(bucket, "notification")} show={(root: Element | null) => <XmlEditor bucket={bucket} value={lines(root)} />} /></Card>;
}

export function Settings(props: Props): JSX.Element {
	const { bucket } = props;
	return (
		<div class="cards">
			<Versioning bucket={bucket} />
			<Encryption bucket={bucket} />
			<PublicAccess bucket={bucket} />
			<Lock bucket={bucket} />
			<Quota bucket={bucket} />
			<Policy bucket={bucket} />
			<Lifecycle bucket={bucket} />
			<Cors bucket={bucket} />
			<Card title="Tags"><Tags url={path(bucket) + "?tagging"} /></Card>
			<Notification bucket={bucket} />
		</div>
	);
}
