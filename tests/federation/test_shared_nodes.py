"""Many simulated clients on a few nodes: each is asked, answers and fails as one of its own."""

import pytest
from flwr.app import ConfigRecord, Context, Error, Message, MessageType, RecordDict

from fedivon_app.federation import shared_nodes
from fedivon_app.federation.shared_nodes import CLIENTS, FIRST_CLIENT, SharedNodes, play
from tests import golden


class Flower:
    """Flower's grid with nodes that answer when they are told to, and not before."""

    def __init__(self, nodes: int):
        self.contexts = {
            7 * (number + 1): Context(
                run_id=1,
                node_id=7 * (number + 1),
                node_config={"partition-id": number},
                state=RecordDict(),
                run_config={},
            )
            for number in range(nodes)
        }
        self.waiting: dict[str, Message] = {}
        self.done: dict[str, Message] = {}
        self.pushed = 0
        self.most = 0  # messages that waited at a time

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        names = []
        for message in messages:
            name = f"flower-{self.pushed}"
            self.pushed += 1
            message.metadata.__dict__["_message_id"] = name
            self.waiting[name] = message
            names.append(name)
        self.most = max(self.most, len(self.waiting))
        return names

    def pull_messages(self, names):
        return [self.done.pop(name) for name in names if name in self.done]

    def work(self, count=None):
        for name in list(self.waiting)[:count]:
            message = self.waiting.pop(name)
            context = self.contexts[message.metadata.dst_node_id]
            try:
                self.done[name] = play(message, context, answer)
            except ValueError as error:
                self.done[name] = Message(Error(2, str(error)), reply_to=message)


def answer(message, context):
    """A ClientApp that says who it is, and keeps count of what its state has seen."""
    partition = context.node_config["partition-id"]
    if partition == message.content["config"].get("bad"):
        raise ValueError("the scale is broken")
    assert set(message.content) <= {"config", CLIENTS}
    context.state[f"{partition} at {message.content['config'].get('time')}"] = ConfigRecord({})
    told = {"partition": partition, "of": context.node_config.get("num-partitions", 0)}
    told["seen"] = len(context.state)
    return Message(RecordDict({"told": ConfigRecord(told)}), reply_to=message)


@pytest.fixture(autouse=True)
def process():
    golden.prepare_process()


def contents(count, **config):
    return [RecordDict({"config": ConfigRecord(config)}) for _ in range(count)]


def push(grid, contents, kind=MessageType.TRAIN):
    nodes = grid.get_node_ids()
    return grid.push_messages(
        [Message(content, node, kind) for content, node in zip(contents, nodes, strict=True)]
    )


def collected(flower, grid, names):
    """Who answered, by the node that the server takes it for, and all replies in order."""
    replies = []
    while len(replies) < len(names):
        flower.work()
        replies += grid.pull_messages(names)
    assert sorted(one.metadata.reply_to_message_id for one in replies) == sorted(names)
    return {one.metadata.src_node_id - FIRST_CLIENT: one for one in replies}


def test_every_client_answers_for_itself_whichever_node_plays_it():
    flower = Flower(3)
    grid = SharedNodes(flower, 20)
    assert len(grid.get_node_ids()) == 20
    replies = collected(flower, grid, push(grid, contents(20)))
    assert sorted(replies) == list(range(20))
    for partition, reply in replies.items():
        assert dict(reply.content["told"]) == {"partition": partition, "of": 20, "seen": 1}
    assert flower.pushed == 20
    assert flower.most <= 3 * shared_nodes.IN_STORE


def test_what_a_client_has_in_flowers_state_follows_it_from_node_to_node():
    flower = Flower(3)
    grid = SharedNodes(flower, 10)
    for time in (1, 2, 3):
        several = contents(10, time=time) if time != 2 else contents(1, time=time) * 10
        replies = collected(flower, grid, push(grid, several))
        assert [replies[p].content["told"]["seen"] for p in range(10)] == [time] * 10
        assert all(list(reply.content) == ["told"] for reply in replies.values())
    assert all(not context.state for context in flower.contexts.values())


def test_a_question_to_all_goes_to_each_node_once():
    flower = Flower(3)
    grid = SharedNodes(flower, 20)
    replies = collected(flower, grid, push(grid, contents(1) * 20, MessageType.QUERY))
    assert {p: reply.content["told"]["partition"] for p, reply in replies.items()} == {
        p: p for p in range(20)
    }
    assert flower.pushed == 3


def test_a_client_that_fails_is_dropped_alone_and_in_a_bundle_with_its_bundle():
    flower = Flower(2)
    grid = SharedNodes(flower, 6)
    replies = collected(flower, grid, push(grid, contents(6, bad=4)))
    failed = {p: reply.error.reason for p, reply in replies.items() if reply.has_error()}
    assert failed == {4: "the scale is broken"}
    replies = collected(flower, grid, push(grid, contents(1, bad=4) * 6))
    assert [p for p in sorted(replies) if replies[p].has_error()] == [3, 4, 5]


def test_who_is_late_is_given_up_and_its_reply_does_not_stay_with_flower():
    flower = Flower(2)
    grid = SharedNodes(flower, 9)
    push(grid, contents(9))
    flower.work(1)
    assert len(flower.waiting) == 3  # of nine; five were never handed out
    names = push(grid, contents(9))
    replies = collected(flower, grid, names)
    assert sorted(replies) == list(range(9))
    assert flower.pushed == 4 + 9 and not flower.done


def test_without_nodes_there_are_no_clients_yet():
    assert SharedNodes(Flower(0), 5).get_node_ids() == []


def test_a_message_that_names_no_client_is_for_the_node_itself():
    context = Flower(1).contexts[7]
    message = Message(contents(1)[0], 7, MessageType.TRAIN)
    for _ in range(2):
        reply = play(message, context, answer)
    assert dict(reply.content["told"]) == {"partition": 0, "of": 0, "seen": 1}
    assert list(context.state) == ["0 at None"]
    assert CLIENTS not in message.content
