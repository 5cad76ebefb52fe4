// Asks the server again and again while a page is open.
import { ask } from "./api";
import { Look, parse } from "./metrics";
import { told } from "./ui";

export const LOOK_MS = 2000;

export async function look(poll: boolean): Promise<Look> {
	const samples = parse(await (await ask("/metrics", { poll })).text());
	return { at: Date.now(), samples };
}

export class Poll<T> {
	private timer = 0;
	private round = 0;
	private good = false;

	constructor(private readonly load: (poll: boolean) => Promise<T>, private readonly show: (value: T) => void, private readonly fail: (problem: string) => void) {}

	/** Asks now, as an action of the user, and from then on by itself. */
	begin(): void {
		void this.run(false);
	}

	/** The answer to a question that is on its way is not shown. */
	end(): void {
		this.round++;
		clearTimeout(this.timer);
	}

	private async run(poll: boolean): Promise<void> {
		const round = ++this.round;
		clearTimeout(this.timer);
		try {
			const value = await this.load(poll);
			if (round !== this.round) return;
			this.good = true;
			this.show(value);
		} catch (error) {
			if (round !== this.round) return;
			this.fail(told(error));
			// A user without the right is refused again, so polling ends.
			if (!this.good) return;
		}
		this.timer = window.setTimeout(() => void this.run(true), LOOK_MS);
	}
}
