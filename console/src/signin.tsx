// Signing in: by an access key, or by a token of an identity provider.
import { Component, h } from "preact";
import { Session, post } from "./api";
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
}

export class SignIn extends Component<Props, State> {
	state: State = { byToken: false, accessKey: "", secretKey: "", roleArn: "", token: "", busy: false };

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
					<Button label={state.byToken ? "Sign in with an access key" : "Sign in with a token"} kind="quiet" onClick={() => this.setState({ byToken: !state.byToken, problem: undefined })} />
				</form>
			</main>
		);
	}
}
