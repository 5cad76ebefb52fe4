// Users, groups, roles, policies and keys, by IAM; and, for the server's root, accounts.
import { Component, h } from "preact";
import { Session, all, ask, first, iam, iamList, json, post, text } from "./api";
import { CreateRole, Trust } from "./roles";
import { Act, Badge, Button, Card, Copy, Dialog, Empty, Field, FormDialog, JsonField, Loaded, many, pretty, when } from "./ui";

type Kind = "User" | "Group" | "Role";

const SAYS: Record<Kind, { none: string; gone: string }> = {
	User: { none: "A user has keys of its own, and may do what its policies allow.", gone: "Its keys stop working at once. Its objects stay." },
	Group: { none: "A group's policies hold for all its users.", gone: "Its users lose what its policies allow." },
	Role: { none: "A role has no keys: users, or people with a token of an identity provider, get its rights for some hours.", gone: "Its sessions end at once. Its objects stay." },
};

const BLANK_POLICY = JSON.stringify({ Version: "2012-10-17", Statement: [{ Effect: "Allow", Action: ["s3:ListBucket", "s3:GetObject"], Resource: ["arn:aws:s3:::bucket", "arn:aws:s3:::bucket/*"] }] }, null, 2);

const there = (kind: Kind, name: string): string => `#/people/${kind.toLowerCase()}s/${encodeURIComponent(name)}`;

interface Policy {
	name: string;
	arn: string;
}

/** The policies that every account has; no list contains them. */
const BUILT_IN = ["AdministratorAccess", "AmazonS3FullAccess", "AmazonS3ReadOnlyAccess", "AmazonSNSFullAccess", "AmazonSNSReadOnlyAccess", "IAMFullAccess", "IAMReadOnlyAccess"]
	.map((name): Policy => ({ name, arn: `arn:aws:iam::aws:policy/${name}` }));

async function policies(): Promise<Policy[]> {
	return [...(await iamList("ListPolicies", "Policies")).map((each) => ({ name: text(each, "PolicyName"), arn: text(each, "Arn") })), ...BUILT_IN];
}

/* ---- Lists of users and groups. ---- */

class Create extends Component<{ kind: Kind; onDone: () => void }, { name: string }> {
	state = { name: "" };

	render(): JSX.Element {
		const { props, state } = this;
		const word = props.kind.toLowerCase();
		return (
			<FormDialog title={`Create a ${word}`} verb="Create" onDone={props.onDone} run={async () => {
				await iam(`Create${props.kind}`, { [`${props.kind}Name`]: state.name });
				location.hash = there(props.kind, state.name);
			}}>
				<Field id="entity-name" label="Name" value={state.name} required focus hint="Letters, digits and _+=,.@-" onValue={(name) => this.setState({ name: name.trim() })} />
			</FormDialog>
		);
	}
}

class Entities extends Component<{ kind: Kind; account: string }, { creating?: boolean; round: number; filter: string }> {
	state = { creating: false, round: 0, filter: "" };

	private table(items: Element[]): JSX.Element {
		const { kind } = this.props;
		const word = kind.toLowerCase();
		const shown = items.filter((each) => text(each, `${kind}Name`).toLowerCase().includes(this.state.filter.toLowerCase()));
		if (!items.length) return <Empty icon="people" title={`No ${word}s yet`}><p>{SAYS[kind].none}</p></Empty>;
		return (
			<div class="scroll"><table>
				<caption>{many(shown.length, word)}</caption>
				<thead><tr><th scope="col">Name</th><th scope="col" class="wide">ARN</th><th scope="col" class="number">Created</th></tr></thead>
				<tbody>{shown.map((each) => {
					const name = text(each, `${kind}Name`);
					return <tr key={name}><td class="long"><a class="item" href={there(kind, name)}>{name}</a></td><td class="long wide"><code class="quiet">{text(each, "Arn")}</code></td><td class="number">{when(text(each, "CreateDate"))}</td></tr>;
				})}</tbody>
			</table></div>
		);
	}

	render(): JSX.Element {
		const { props, state } = this;
		const word = props.kind.toLowerCase();
		const created = (): void => this.setState({ creating: false, round: state.round + 1 });
		return (
			<div>
				<div class="head">
					<span class="grow" />
					<input class="search" type="search" placeholder="Filter" aria-label="Filter by name" value={state.filter} onInput={(event) => this.setState({ filter: (event.target as HTMLInputElement).value })} />
					<Button label={`Create ${word}`} icon="plus" kind="primary" onClick={() => this.setState({ creating: true })} />
				</div>
				<Loaded of={props.kind + String(state.round)} load={() => iamList(`List${props.kind}s`, `${props.kind}s`)} show={(items: Element[]) => this.table(items)} />
				{state.creating ? (props.kind === "Role" ? <CreateRole account={props.account} onDone={created} there={(name) => there("Role", name)} /> : <Create kind={props.kind} onDone={created} />) : null}
			</div>
		);
	}
}

/* ---- Keys. ---- */

interface Key {
	access: string;
	secret: string;
}

function Secret(props: { made: Key; onClose: () => void }): JSX.Element {
	return (
		<Dialog title="The new key" onClose={props.onClose}>
			<div class="body">
				<p>Copy the secret key now: nobody can see it again.</p>
				<h3>Access key</h3><Copy text={props.made.access} label="Copy" />
				<h3>Secret key</h3><Copy text={props.made.secret} label="Copy" />
			</div>
		</Dialog>
	);
}

class Keys extends Component<{ user: string }, { made?: Key }> {
	state = { made: undefined as Key | undefined };

	private async make(again: () => void): Promise<void> {
		const key = first(await iam("CreateAccessKey", { UserName: this.props.user }), "AccessKey");
		this.setState({ made: { access: text(key, "AccessKeyId"), secret: text(key, "SecretAccessKey") } });
		again();
	}

	render(): JSX.Element {
		const { props, state } = this;
		const show = (keys: Element[], again: () => void): JSX.Element => (
			<div>
				{keys.length ? <ul class="rules">{keys.map((each) => {
					const id = text(each, "AccessKeyId");
					const on = text(each, "Status") === "Active";
					const fields = { UserName: props.user, AccessKeyId: id };
					return (
						<li key={id}>
							<span class="long"><code>{id}</code> <Badge text={on ? "active" : "inactive"} kind={on ? "good" : "warn"} /></span>
							<Act label={on ? "Deactivate" : "Activate"} run={async () => { await iam("UpdateAccessKey", { ...fields, Status: on ? "Inactive" : "Active" }); again(); }} />
							<Act label={`Delete the key ${id}`} icon="bin" kind="quiet" bare run={async () => { await iam("DeleteAccessKey", fields); again(); }} />
						</li>
					);
				})}</ul> : <p class="quiet">No keys.</p>}
				<Act label="Create key" icon="plus" run={() => this.make(again)} />
				{state.made ? <Secret made={state.made} onClose={() => this.setState({ made: undefined })} /> : null}
			</div>
		);
		return <Card title="Access keys" text="At most four. To change one: create a second, use it, then delete the first."><Loaded of={props.user} load={() => iamList("ListAccessKeys", "AccessKeyMetadata", { UserName: props.user })} show={show} /></Card>;
	}
}

/* ---- Policies of a user or a group. ---- */

interface AttachedState {
	arn: string;
}

class Attached extends Component<{ kind: Kind; name: string }, AttachedState> {
	state: AttachedState = { arn: "" };

	render(): JSX.Element {
		const { props, state } = this;
		const who = { [`${props.kind}Name`]: props.name };
		const load = async (): Promise<{ attached: Policy[]; known: Policy[] }> => {
			const attached = (await iamList(`ListAttached${props.kind}Policies`, "AttachedPolicies", who)).map((each) => ({ name: text(each, "PolicyName"), arn: text(each, "PolicyArn") }));
			return { attached, known: (await policies()).filter((each) => !attached.some((other) => other.arn === each.arn)) };
		};
		const show = ({ attached, known }: { attached: Policy[]; known: Policy[] }, again: () => void): JSX.Element => (
			<div>
				{attached.length ? <ul class="rules">{attached.map((each) => (
					<li key={each.arn}><span class="long">{each.name}<br /><code class="quiet">{each.arn}</code></span><Act label="Detach" run={async () => { await iam(`Detach${props.kind}Policy`, { ...who, PolicyArn: each.arn }); again(); }} /></li>
				))}</ul> : <p class="quiet">None is attached.</p>}
				<div class="row">
					<Field id="attach-arn" label="Managed policy" value={state.arn} options={[["", "Choose one"], ...known.map((each): [string, string] => [each.arn, each.name])]} onValue={(arn) => this.setState({ arn })} />
					<Act label="Attach" disabled={!state.arn} run={async () => { await iam(`Attach${props.kind}Policy`, { ...who, PolicyArn: state.arn }); this.setState({ arn: "" }); again(); }} />
				</div>
			</div>
		);
		return <Card title="Policies"><Loaded of={props.name} load={load} show={show} /></Card>;
	}
}

interface PolicyEdit {
	name: string;
	document: string;
	fresh: boolean;
}

class PolicyDialog extends Component<{ edit: PolicyEdit; title: string; save: (name: string, document: string) => Promise<void>; onDone: () => void }, PolicyEdit> {
	state: PolicyEdit = this.props.edit;

	render(): JSX.Element {
		const { props, state } = this;
		return (
			<FormDialog title={props.title} verb="Save" wide onDone={props.onDone} run={() => props.save(state.name, state.document)}>
				{props.edit.fresh ? <Field id="policy-name" label="Name" value={state.name} required focus onValue={(name) => this.setState({ name: name.trim() })} /> : null}
				<JsonField id="policy-document" label="Document" value={state.document} onValue={(document) => this.setState({ document })} />
			</FormDialog>
		);
	}
}

class Inline extends Component<{ kind: Kind; name: string }, { edit?: PolicyEdit }> {
	state = { edit: undefined as PolicyEdit | undefined };

	private async open(who: Record<string, string>, name: string): Promise<void> {
		const result = await iam(`Get${this.props.kind}Policy`, { ...who, PolicyName: name });
		this.setState({ edit: { name, document: pretty(decodeURIComponent(text(result, "PolicyDocument"))), fresh: false } });
	}

	render(): JSX.Element {
		const { props, state } = this;
		const who = { [`${props.kind}Name`]: props.name };
		const show = (names: Element[], again: () => void): JSX.Element => (
			<div>
				{names.length ? <ul class="rules">{names.map((each) => {
					const name = each.textContent ?? "";
					return <li key={name}><span class="long">{name}</span><Act label="Edit" run={() => this.open(who, name)} /><Act label={`Delete the policy ${name}`} icon="bin" kind="quiet" bare run={async () => { await iam(`Delete${props.kind}Policy`, { ...who, PolicyName: name }); again(); }} /></li>;
				})}</ul> : <p class="quiet">None.</p>}
				<Button label="Add" icon="plus" onClick={() => this.setState({ edit: { name: "", document: BLANK_POLICY, fresh: true } })} />
				{state.edit ? <PolicyDialog edit={state.edit} title={state.edit.fresh ? "A policy of its own" : state.edit.name} onDone={() => { this.setState({ edit: undefined }); again(); }}
					save={async (name, document) => { await iam(`Put${props.kind}Policy`, { ...who, PolicyName: name, PolicyDocument: document }); }} /> : null}
			</div>
		);
		return <Card title="Policies of its own" text={`Written for this ${props.kind.toLowerCase()} alone.`}><Loaded of={props.name} load={() => iamList(`List${props.kind}Policies`, "PolicyNames", who)} show={show} /></Card>;
	}
}

/* ---- Membership. ---- */

class Groups extends Component<{ user: string }, { group: string }> {
	state = { group: "" };

	render(): JSX.Element {
		const { props, state } = this;
		const load = async (): Promise<{ mine: string[]; others: string[] }> => {
			const mine = (await iamList("ListGroupsForUser", "Groups", { UserName: props.user })).map((each) => text(each, "GroupName"));
			const every = (await iamList("ListGroups", "Groups")).map((each) => text(each, "GroupName"));
			return { mine, others: every.filter((each) => !mine.includes(each)) };
		};
		const show = ({ mine, others }: { mine: string[]; others: string[] }, again: () => void): JSX.Element => (
			<div>
				{mine.length ? <ul class="rules">{mine.map((each) => (
					<li key={each}><a class="long" href={there("Group", each)}>{each}</a><Act label="Leave" run={async () => { await iam("RemoveUserFromGroup", { UserName: props.user, GroupName: each }); again(); }} /></li>
				))}</ul> : <p class="quiet">In no group.</p>}
				{others.length ? <div class="row">
					<Field id="join-group" label="Group" value={state.group} options={[["", "Choose one"], ...others.map((each): [string, string] => [each, each])]} onValue={(group) => this.setState({ group })} />
					<Act label="Join" disabled={!state.group} run={async () => { await iam("AddUserToGroup", { UserName: props.user, GroupName: state.group }); this.setState({ group: "" }); again(); }} />
				</div> : null}
			</div>
		);
		return <Card title="Groups"><Loaded of={props.user} load={load} show={show} /></Card>;
	}
}

function Members(props: { key?: string; group: string }): JSX.Element {
	const load = async (): Promise<string[]> => all(first(await iam("GetGroup", { GroupName: props.group }), "Users"), "member").map((each) => text(each, "UserName"));
	const show = (users: string[]): JSX.Element => (users.length ? <ul class="rules">{users.map((each) => <li key={each}><a class="long" href={there("User", each)}>{each}</a></li>)}</ul> : <p class="quiet">Nobody yet. A user's own page has its groups.</p>);
	return <Card title="Members"><Loaded of={props.group} load={load} show={show} /></Card>;
}

/** The parts that belong to the entity must be deleted first. */
async function dissolve(kind: Kind, name: string): Promise<void> {
	const who = { [`${kind}Name`]: name };
	for (const each of await iamList(`ListAttached${kind}Policies`, "AttachedPolicies", who)) await iam(`Detach${kind}Policy`, { ...who, PolicyArn: text(each, "PolicyArn") });
	for (const each of await iamList(`List${kind}Policies`, "PolicyNames", who)) await iam(`Delete${kind}Policy`, { ...who, PolicyName: each.textContent ?? "" });
	if (kind === "User") {
		for (const each of await iamList("ListGroupsForUser", "Groups", who)) await iam("RemoveUserFromGroup", { ...who, GroupName: text(each, "GroupName") });
		for (const each of await iamList("ListAccessKeys", "AccessKeyMetadata", who)) await iam("DeleteAccessKey", { ...who, AccessKeyId: text(each, "AccessKeyId") });
	} else if (kind === "Group") {
		for (const each of all(first(await iam("GetGroup", who), "Users"), "member")) await iam("RemoveUserFromGroup", { ...who, UserName: text(each, "UserName") });
	}
	await iam(`Delete${kind}`, who);
}

class Entity extends Component<{ kind: Kind; name: string }, { deleting?: boolean }> {
	state = { deleting: false };

	render(): JSX.Element {
		const { props, state } = this;
		const word = props.kind.toLowerCase();
		return (
			<div>
				<div class="head">
					<h2 class="grow long">{props.name}</h2>
					<Button label={`Delete ${word}`} icon="bin" kind="danger" onClick={() => this.setState({ deleting: true })} />
				</div>
				<div class="cards">
					{props.kind === "User" ? <Keys key="keys" user={props.name} /> : null}
					<Attached key="attached" kind={props.kind} name={props.name} />
					<Inline key="inline" kind={props.kind} name={props.name} />
					{props.kind === "User" ? <Groups key="groups" user={props.name} /> : props.kind === "Group" ? <Members key="members" group={props.name} /> : <Trust key="trust" role={props.name} />}
				</div>
				{state.deleting ? <FormDialog title={`Delete ${props.name}?`} verb="Delete" danger onDone={() => this.setState({ deleting: false })} run={async () => {
					await dissolve(props.kind, props.name);
					location.hash = `#/people/${word}s`;
				}}><p>{SAYS[props.kind].gone}</p></FormDialog> : null}
			</div>
		);
	}
}

/* ---- Managed policies. ---- */

class Policies extends Component<{}, { edit?: PolicyEdit; shown?: { name: string; document: string }; deleting?: Policy; round: number }> {
	state = { edit: undefined as PolicyEdit | undefined, shown: undefined as { name: string; document: string } | undefined, deleting: undefined as Policy | undefined, round: 0 };

	private async open(policy: Policy): Promise<void> {
		// Built-in policies have one version.
		const version = BUILT_IN.some((each) => each.arn === policy.arn) ? "v1" : text(await iam("GetPolicy", { PolicyArn: policy.arn }), "Policy/DefaultVersionId");
		const result = await iam("GetPolicyVersion", { PolicyArn: policy.arn, VersionId: version });
		this.setState({ shown: { name: policy.name, document: pretty(decodeURIComponent(text(result, "PolicyVersion/Document"))) } });
	}

	render(): JSX.Element {
		const { state } = this;
		const done = (): void => this.setState({ edit: undefined, deleting: undefined, round: this.state.round + 1 });
		const show = (found: Policy[]): JSX.Element => (
			<div class="scroll"><table>
				<caption>{`${count(found.length)}`}</caption>
				<thead><tr><th scope="col">Name</th><th scope="col" class="wide">ARN</th><th scope="col" class="acts"><span class="unseen">Actions</span></th></tr></thead>
				<tbody>{found.map((each) => {
					const builtIn = each.arn.startsWith("arn:aws:iam::aws:");
					return (
						<tr key={each.arn}>
							<td class="long">{each.name} {builtIn ? <Badge text="built in" /> : null}</td><td class="long wide"><code class="quiet">{each.arn}</code></td>
							<td class="acts"><Act label="Show" run={() => this.open(each)} />{builtIn ? null : <Button label={`Delete ${each.name}`} icon="bin" kind="quiet" bare onClick={() => this.setState({ deleting: each })} />}</td>
						</tr>
					);
				})}</tbody>
			</table></div>
		);
		return (
			<div>
				<div class="head"><span class="grow" /><Button label="Create policy" icon="plus" kind="primary" onClick={() => this.setState({ edit: { name: "", document: BLANK_POLICY, fresh: true } })} /></div>
				<Loaded of={String(state.round)} load={policies} show={show} />
				{state.edit ? <PolicyDialog edit={state.edit} title="Create a policy" onDone={done} save={async (name, document) => { await iam("CreatePolicy", { PolicyName: name, PolicyDocument: document }); }} /> : null}
				{state.shown ? <Dialog title={state.shown.name} wide onClose={() => this.setState({ shown: undefined })}><div class="body object"><pre tabIndex={0} aria-label="The policy">{state.shown.document}</pre></div></Dialog> : null}
				{state.deleting ? <FormDialog title={`Delete ${state.deleting.name}?`} verb="Delete" danger onDone={done} run={async () => { await iam("DeletePolicy", { PolicyArn: state.deleting?.arn ?? "" }); }}><p>A policy that is attached cannot be deleted.</p></FormDialog> : null}
			</div>
		);
	}
}

const count = (number: number): string => (number === 1 ? "1 policy" : `${number} policies`);

/* ---- Accounts, which only the server's root sees. ---- */

interface Account {
	account_id: string;
	display_name: string;
	email: string;
	users: number;
}

/** All but the server's own, whose users the other tabs show. */
async function others(): Promise<Account[]> {
	return (await json<{ accounts: Account[] }>("/admin/v1/accounts")).accounts.filter((each) => each.account_id !== "000000000000");
}

class Accounts extends Component<{}, { creating?: boolean; number: string; name: string; made?: Key; deleting?: Account; round: number }> {
	state = { creating: false, number: "", name: "", made: undefined as Key | undefined, deleting: undefined as Account | undefined, round: 0 };

	private async key(account: string): Promise<void> {
		const made = await post<{ access_key: string; secret_key: string }>(`/admin/v1/accounts/${encodeURIComponent(account)}/keys`, {});
		this.setState({ made: { access: made.access_key, secret: made.secret_key } });
	}

	private async create(): Promise<void> {
		const { number, name } = this.state;
		await ask(`/admin/v1/accounts/${encodeURIComponent(number)}`, { method: "PUT", body: JSON.stringify({ display_name: name }) });
		await this.key(number);
	}

	render(): JSX.Element {
		const { state } = this;
		const done = (): void => this.setState({ creating: false, deleting: undefined, number: "", name: "", round: this.state.round + 1 });
		const show = (accounts: Account[]): JSX.Element => (accounts.length ? (
			<div class="scroll"><table>
				<caption>{many(accounts.length, "account")}</caption>
				<thead><tr><th scope="col">Number</th><th scope="col">Name</th><th scope="col" class="number">Users</th><th scope="col" class="acts"><span class="unseen">Actions</span></th></tr></thead>
				<tbody>{accounts.map((each) => (
					<tr key={each.account_id}><td><code>{each.account_id}</code></td><td class="long">{each.display_name}</td><td class="number">{each.users}</td>
						<td class="acts"><Act label="New root key" run={() => this.key(each.account_id)} /><Button label={`Delete the account ${each.account_id}`} icon="bin" kind="quiet" bare onClick={() => this.setState({ deleting: each })} /></td></tr>
				))}</tbody>
			</table></div>
		) : <Empty icon="people" title="No accounts but the server's own"><p>An account has users, policies and buckets of its own, apart from all others.</p></Empty>);
		return (
			<div>
				<div class="head"><span class="grow" /><Button label="Create account" icon="plus" kind="primary" onClick={() => this.setState({ creating: true })} /></div>
				<Loaded of={String(state.round)} load={others} show={show} />
				{state.creating ? <FormDialog title="Create an account" verb="Create" onDone={done} run={() => this.create()}>
					<Field id="account-number" label="Number" value={state.number} required focus hint="Twelve digits as a rule" onValue={(number) => this.setState({ number: number.trim() })} />
					<Field id="account-name" label="Name" value={state.name} required onValue={(name) => this.setState({ name })} />
				</FormDialog> : null}
				{state.deleting ? <FormDialog title={`Delete the account ${state.deleting.account_id}?`} verb="Delete" danger onDone={done} run={async () => { await ask(`/admin/v1/accounts/${encodeURIComponent(state.deleting?.account_id ?? "")}`, { method: "DELETE" }); }}><p>Its users, keys and policies go with it. An account that owns buckets cannot be deleted.</p></FormDialog> : null}
				{state.made ? <Secret made={state.made} onClose={() => this.setState({ made: undefined })} /> : null}
			</div>
		);
	}
}

export function People(props: { key?: string; session: Session; at: string[] }): JSX.Element {
	const [tab, name] = [props.at[0] ?? "users", props.at[1]];
	const root = props.session.arn === "arn:aws:iam::000000000000:root";
	const tabs: [string, string][] = [["users", "Users"], ["groups", "Groups"], ["roles", "Roles"], ["policies", "Policies"], ...(root ? [["accounts", "Accounts"] as [string, string]] : [])];
	const kind: Kind = tab === "groups" ? "Group" : tab === "roles" ? "Role" : "User";
	return (
		<section>
			<div class="head"><h1>People</h1><span class="quiet">Account {props.session.account}</span></div>
			<nav class="tabs" aria-label="Kinds">{tabs.map(([id, label]) => <a href={`#/people/${id}`} aria-current={tab === id ? "page" : undefined}>{label}</a>)}</nav>
			{tab === "policies" ? <Policies key="policies" /> : tab === "accounts" ? <Accounts key="accounts" /> : name ? <Entity key={kind + name} kind={kind} name={name} /> : <Entities key={kind} kind={kind} account={props.session.account} />}
		</section>
	);
}
