// The part of a role that users do not have: the policy that names the principals who may assume it.
import { Component, h } from "preact";
import { first, iam, iamList, text } from "./api";
import { Badge, Button, Card, Field, FormDialog, JsonField, Loaded, pretty } from "./ui";

const trust = (statement: object): string => JSON.stringify({ Version: "2012-10-17", Statement: [{ Effect: "Allow", ...statement }] }, null, 2);

const forAccount = (account: string): string => trust({ Principal: { AWS: `arn:aws:iam::${account}:root` }, Action: "sts:AssumeRole" });

/** Without a condition, every user with a token for the client could assume the role: this condition names one user. */
function forProvider(arn: string): string {
	const name = arn.slice(arn.indexOf("/") + 1);
	return trust({ Principal: { Federated: arn }, Action: "sts:AssumeRoleWithWebIdentity", Condition: { StringEquals: { [`${name}:sub`]: "the user's sub" } } });
}

interface CreateState {
	name: string;
	who: string;
	document: string;
}

export class CreateRole extends Component<{ account: string; onDone: () => void; there: (name: string) => string }, CreateState> {
	state: CreateState = { name: "", who: "", document: forAccount(this.props.account) };

	render(): JSX.Element {
		const { props, state } = this;
		const choose = (who: string): void => this.setState({ who, document: who ? forProvider(who) : forAccount(props.account) });
		const show = (providers: string[]): JSX.Element => (
			<Field id="role-who" label="For" value={state.who} options={[["", "users of this account"], ...providers.map((each): [string, string] => [each, `users of ${each.slice(each.indexOf("/") + 1)}`])]} onValue={choose} />
		);
		return (
			<FormDialog title="Create a role" verb="Create" wide onDone={props.onDone} run={async () => {
				await iam("CreateRole", { RoleName: state.name, AssumeRolePolicyDocument: state.document });
				location.hash = props.there(state.name);
			}}>
				<Field id="entity-name" label="Name" value={state.name} required focus hint="Letters, digits and _+=,.@-" onValue={(name) => this.setState({ name: name.trim() })} />
				<Loaded of="providers" load={async () => (await iamList("ListOpenIDConnectProviders", "OpenIDConnectProviderList")).map((each) => text(each, "Arn"))} show={show} />
				<JsonField id="role-trust" label="Who may assume it" value={state.document} onValue={(document) => this.setState({ document })} />
			</FormDialog>
		);
	}
}

export class Trust extends Component<{ key?: string; role: string }, { edit?: string }> {
	state = { edit: undefined as string | undefined };

	render(): JSX.Element {
		const { props, state } = this;
		const load = async (): Promise<{ document: string; arn: string; hours: number }> => {
			const role = first(await iam("GetRole", { RoleName: props.role }), "Role");
			return { document: pretty(decodeURIComponent(text(role, "AssumeRolePolicyDocument"))), arn: text(role, "Arn"), hours: Number(text(role, "MaxSessionDuration") || 3600) / 3600 };
		};
		const show = (role: { document: string; arn: string; hours: number }, again: () => void): JSX.Element => (
			<div>
				<p class="long"><code class="quiet">{role.arn}</code> <Badge text={`sessions of ${role.hours} h`} /></p>
				<div class="object"><pre tabIndex={0} aria-label="The trust policy">{role.document}</pre></div>
				<Button label="Edit" onClick={() => this.setState({ edit: role.document })} />
				{state.edit === undefined ? null : (
					<FormDialog title="Who may assume the role" verb="Save" wide onDone={() => { this.setState({ edit: undefined }); again(); }}
						run={async () => { await iam("UpdateAssumeRolePolicy", { RoleName: props.role, PolicyDocument: this.state.edit ?? "" }); }}>
						<JsonField id="role-trust" label="Trust policy" value={state.edit} onValue={(edit) => this.setState({ edit })} />
					</FormDialog>
				)}
			</div>
		);
		return <Card title="Who may assume it"><Loaded of={props.role} load={load} show={show} /></Card>;
	}
}
