// The tags of an object or a bucket, as a list that is changed in place.
import { Component, h } from "preact";
import { all, ask, escape, optional, text, xml } from "./api";
import { Button, Field, Loaded, Problem, told } from "./ui";

interface Tag {
	key: string;
	value: string;
}

async function read(url: string): Promise<Tag[]> {
	const root = await optional(xml(url));
	return all(all(root, "TagSet")[0], "Tag").map((each) => ({ key: text(each, "Key"), value: text(each, "Value") }));
}

interface Props {
	/** With its "?tagging". */
	url: string;
	tags: Tag[];
	again: () => void;
}
interface State {
	key: string;
	value: string;
	problem?: string;
}

class Editor extends Component<Props, State> {
	state: State = { key: "", value: "" };

	private async write(tags: Tag[]): Promise<void> {
		try {
			const body = `<Tagging><TagSet>${tags.map((each) => `<Tag><Key>${escape(each.key)}</Key><Value>${escape(each.value)}</Value></Tag>`).join("")}</TagSet></Tagging>`;
			await ask(this.props.url, tags.length ? { method: "PUT", body } : { method: "DELETE" });
			this.setState({ key: "", value: "", problem: undefined });
			this.props.again();
		} catch (error) {
			this.setState({ problem: told(error) });
		}
	}

	render(): JSX.Element {
		const { props, state } = this;
		const others = (key: string): Tag[] => props.tags.filter((each) => each.key !== key);
		return (
			<div>
				{props.tags.length ? <ul class="tags">{props.tags.map((each) => (
					<li key={each.key}><span class="long">{each.key} = {each.value}</span><Button label={`Remove ${each.key}`} icon="close" kind="quiet" bare onClick={() => void this.write(others(each.key))} /></li>
				))}</ul> : <p class="quiet">No tags.</p>}
				<form class="row" onSubmit={(event) => { event.preventDefault(); void this.write([...others(state.key), { key: state.key, value: state.value }]); }}>
					<Field id="tag-key" label="Tag" value={state.key} required onValue={(key) => this.setState({ key })} />
					<Field id="tag-value" label="Value" value={state.value} onValue={(value) => this.setState({ value })} />
					<Button label="Add" submit />
				</form>
				<Problem text={state.problem} />
			</div>
		);
	}
}

export function Tags(props: { url: string }): JSX.Element {
	return <Loaded of={props.url} load={() => read(props.url)} show={(tags: Tag[], again) => <Editor url={props.url} tags={tags} again={again} />} />;
}
