// The page: the signed-in user, the current route, and its contents.
import { Component, h, render } from "preact";
import { Failure, Session, ask, json, onSession } from "./api";
import { Buckets } from "./buckets";
import { Bucket } from "./objects";
import { Operations } from "./operations";
import { People } from "./people";
import { SignIn } from "./signin";
import { Button, Icon, IconName } from "./ui";
import { UploadList } from "./uploads";

interface State {
	session?: Session;
	/** Whether the server has said which user, if any, is signed in. */
	known: boolean;
	message?: string;
	route: string[];
}

/** "#/b/name/a%2Fb" as ["b", "name", "a/b"]. */
function route(): string[] {
	const parts = location.hash.replace(/^#\/?/, "").split("/").filter((part) => part);
	try {
		return parts.map(decodeURIComponent);
	} catch {
		return [];
	}
}

/** A user's name; for other principals, the name that they signed in with. */
function name(session: Session): string {
	return /:user\/(?:.*\/)?([^/]+)$/.exec(session.arn)?.[1] ?? session.user;
}

const THEME = "nebulaio-theme";

function theme(): string {
	return localStorage.getItem(THEME) ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function setTheme(name: string): void {
	localStorage.setItem(THEME, name);
	document.documentElement.dataset.theme = name;
}

const PLACES: { path: string; label: string; icon: IconName }[] = [
	{ path: "buckets", label: "Buckets", icon: "bucket" },
	{ path: "people", label: "People", icon: "people" },
	{ path: "health", label: "Health", icon: "chart" },
];

class App extends Component<{}, State> {
	state: State = { known: false, route: route() };
	private used = Date.now();
	private timer = 0;

	componentDidMount(): void {
		onSession({ ended: () => this.end("Your session has ended. Sign in again."), active: () => { this.used = Date.now(); } });
		// A file that is dropped beside a place for files is not opened in place of the page.
		for (const name of ["dragover", "drop"]) addEventListener(name, (event) => event.preventDefault());
		addEventListener("hashchange", () => this.setState({ route: route() }));
		if (localStorage.getItem(THEME)) setTheme(theme());
		void this.resume();
	}

	/** A reload of the page keeps the user signed in. */
	private async resume(): Promise<void> {
		try {
			this.begin(await json<Session>("/api/session", { poll: true }));
		} catch (error) {
			this.setState({ known: true, message: error instanceof Failure && error.status !== 401 ? error.message : undefined });
		}
	}

	private begin(session: Session): void {
		this.setState({ session, known: true, message: undefined });
		this.watch(session);
	}

	/** Asks when the session may be over: another tab may have kept it. */
	private watch(session: Session): void {
		const left = Math.min(session.expires, this.used + session.idleSeconds * 1000) - Date.now();
		clearTimeout(this.timer);
		this.timer = window.setTimeout(() => void this.look(session), Math.max(left, 0) + 500);
	}

	private async look(session: Session): Promise<void> {
		if (!this.state.session) return;
		try {
			const idle = Date.now() - this.used >= session.idleSeconds * 1000;
			await ask("/api/session", { poll: true });
			if (idle) this.used = Date.now() - session.idleSeconds * 500;
			this.watch(session);
		} catch (error) {
			if (error instanceof Failure && error.status !== 401) this.watch(session);
		}
	}

	private end(message?: string): void {
		clearTimeout(this.timer);
		this.setState({ session: undefined, known: true, message });
	}

	private async signOut(): Promise<void> {
		try {
			await ask("/api/sign-out", { method: "POST" });
		} finally {
			this.end();
			location.hash = "";
		}
	}

	private page(session: Session, at: string[]): JSX.Element {
		if ((at[0] === "b" || at[0] === "settings") && at[1]) return <Bucket key={at[1]} bucket={at[1]} prefix={at[2] ?? ""} settings={at[0] === "settings"} />;
		if (at[0] === "people") return <People key="people" session={session} at={at.slice(1)} />;
		if (at[0] === "health") return <Operations key="health" session={session} at={at.slice(1)} />;
		return <Buckets session={session} />;
	}

	render(): JSX.Element {
		const { state } = this;
		if (!state.known) return <div class="start" />;
		if (!state.session) return <SignIn message={state.message} onSession={(session) => this.begin(session)} />;
		const session = state.session;
		const place = ["people", "health"].includes(state.route[0]) ? state.route[0] : "buckets";
		return (
			<div class="frame">
				<a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>To the content</a>
				<header class="bar">
					<a class="brand" href="#/buckets"><img src="/icon.svg" alt="" width="24" height="24" /><span>NebulaIO</span></a>
					<nav aria-label="Pages">
						{PLACES.map((each) => (
							<a href={`#/${each.path}`} aria-current={place === each.path ? "page" : undefined}><Icon name={each.icon} /><span>{each.label}</span></a>
						))}
					</nav>
					<div class="who">
						<span class="name" title={session.arn}>{name(session)}</span>
						<Button label="Light or dark" icon="moon" kind="quiet" bare onClick={() => setTheme(theme() === "dark" ? "light" : "dark")} />
						<Button label="Sign out" icon="leave" kind="quiet" bare onClick={() => void this.signOut()} />
					</div>
				</header>
				<main id="main" tabIndex={-1}>{this.page(session, state.route)}</main>
				<UploadList />
			</div>
		);
	}
}

render(<App />, document.getElementById("app") as HTMLElement);
