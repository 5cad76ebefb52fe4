// The sign-in page: by an access key, or by a token of an identity provider.
import { Component, h } from "preact";
import { Session, json, post } from "./api";
import { Button, Field, Problem, told } from "./ui";

interface Props {
	message?: string;
	onSession: (session: Session) => void;
}
interface State {
	byToken: boolean;
	accessKey: string;
	secretKey: string;
	roleArn: string;
	token: string;
	busy: boolean;
	problem?: string;
	/** The name of a provider where one may sign in. */
	provider?: string;
}

/** The reasons for which the server redirects the browser here from the provider. */
const REFUSALS: Record<string, string> = {
	again: "The sign-in took too long, or was begun elsewhere. Try again.",
	away: "The identity provider does not answer. Try again later.",
	provider: "The identity provider did not sign you in.",
	role: "There is no role for you here. Ask whoever runs this server.",
	token: "The identity provider's answer does not belong to this sign-in. Try again.",
	wait: "Too many tries. Try again in a minute.",
};

export class SignIn extends Component<Props, State> {
	state: State = { byToken: false, accessKey: "", secretKey: "", roleArn: "", token: "", busy: false };

	componentDidMount(): void {
		const refused = /^#\/sign-in\/(\w+)$/.exec(location.hash)?.[1];
		if (refused) {
			this.setState({ problem: REFUSALS[refused] });
			history.replaceState(null, "", "#/");
		}
		void json<{ openid?: string }>("/api/sign-in", { poll: true }).then(({ openid }) => this.setState({ provider: openid })).catch(() => undefined);
	}

	private async submit(event: Event): Promise<void> {
		event.preventDefault();
		const { byToken, accessKey, secretKey, roleArn, token } = this.state;
		this.setState({ busy: true, problem: undefined });
		try {
			const session = await post<Session>("/api/sign-in", byToken ? { roleArn, token: token.trim() } : { accessKey, secretKey });
			this.props.onSession(session);
		} catch (error) {
			this.setState({ busy: false, secretKey: "", problem: told(error) });
			document.getElementById(byToken ? "token" : "secret-key")?.focus();
		}
	}

	render(): JSX.Element {
		const { props, state } = this;
		return (
			<main class="sign-in">
				<form onSubmit={(event) => void this.submit(event)}>
					<img src="/icon.svg" alt="" width="44" height="44" />
					<h1>NebulaIO</h1>
					{state.byToken ? [
						<Field key="role" id="role-arn" label="Role" value={state.roleArn} required focus hint="For example arn:aws:iam::111122223333:role/reader" onValue={(roleArn) => this.setState({ roleArn })} />,
						<Field key="token" id="token" label="Token" rows={4} value={state.token} required hint="A JWT of an OpenID Connect provider of the role's account" onValue={(token) => this.setState({ token })} />,
					] : [
						<Field key="access" id="access-key" label="Access key" value={state.accessKey} required focus autocomplete="username" onValue={(accessKey) => this.setState({ accessKey })} />,
						<Field key="secret" id="secret-key" label="Secret key" type="password" value={state.secretKey} required autocomplete="current-password" onValue={(secretKey) => this.setState({ secretKey })} />,
					]}
					<Problem text={state.problem ?? props.message} />
					<Button label={state.busy ? "Signing in…" : "Sign in"} kind="primary" submit disabled={state.busy} />
					{state.provider ? <a class="button" href="/openid/begin">Sign in with {state.provider}</a> : null}
					<Button label={state.byToken ? "Sign in with an access key" : "Sign in with a token"} kind="quiet" onClick={() => this.setState({ byToken: !state.byToken, problem: undefined })} />
				</form>
			</main>
		);
	}
}
