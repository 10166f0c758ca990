"""The roll call: who cannot work, who is late, who leaves and comes back, and what the log says."""

import pytest
from flwr.app import Error

from fedivon_app.strategies.roll_call import RunError
from tests.strategies.nodes import Nodes, fedivon, good, start


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({1: {"error": "no such file: site.npz"}}, "partition 1: no such file: site.npz"),
        (
            {1: {"shape": [5]}},
            r"partition 1: its inputs have shape \(5,\), the server's model takes \(4,\)",
        ),
        ({1: {"num-classes": 7}}, "partition 1: it has 7 classes, the server's model 3"),
        ({1: {"partition-id": 0}}, "partition 0: two nodes ask for it"),
    ],
)
def test_a_node_that_cannot_work_is_named_before_anything_is_trained(properties, says):
    def never(partition, message):
        raise AssertionError("trained")

    with pytest.raises(RunError, match=says):
        start(fedivon(), Nodes(2, never, properties=properties))


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"num-train": "many"}, "its num-train is 'many'"),
        ({"num-test": -1}, "its num-test is -1"),
        ({"num-classes": 2.5}, "its num-classes is 2.5"),
        ({"shape": 4}, "its shape is 4"),
        ({"partition-id": "first"}, "its partition-id is 'first'"),
    ],
)
def test_a_node_that_answers_in_other_terms_is_named_and_left_out(properties, says, caplog):
    (record,) = start(fedivon(), Nodes(3, good, properties={1: properties}))
    assert [c["partition"] for c in record["clients"]] == [0, 2]
    assert any(
        f"node 107 cannot answer the roll call: {says};" in message for message in caplog.messages
    )


def test_missing_nodes_are_waited_for_then_named():
    with pytest.raises(RunError, match="the federation has 2 nodes .* data.clients asks for 5"):
        start(fedivon(data={"clients": 5}, server={"node_timeout": 0.1}), Nodes(2, good))
    with pytest.raises(RunError, match="clients_per_round is 3, but the federation has 2 clients"):
        start(fedivon(clients_per_round=3), Nodes(2, good))


def test_a_private_run_says_at_its_start_who_has_too_few_examples(caplog):
    private = {"privacy": {"epsilon": 4}, "evaluation": {"clients_every": 0}}
    sizes = {0: {"num-train": 999, "name": "Trier"}, 1: {"num-train": 1000}}
    start(fedivon(**private), Nodes(2, good, properties=sizes))
    (said,) = (text for text in caplog.messages if "hardly of use" in text)
    assert "fewer than 1000 examples a client" in said
    assert said.endswith("This applies to partition 0 (Trier)")
    caplog.clear()
    start(fedivon(**private), Nodes(8, good))
    (said,) = (text for text in caplog.messages if "hardly of use" in text)
    assert said.endswith("partition 4 and 3 more")
    caplog.clear()
    start(fedivon(), Nodes(2, good))
    assert "hardly of use" not in caplog.text


BEYOND = {2: {"error": "the node's partition-id is 2, but data.clients is 2: ids count from 0"}}


def test_a_node_more_than_the_run_has_clients_is_told_and_left_out(caplog):
    nodes = Nodes(3, good, properties=BEYOND)
    records = start(fedivon(data={"clients": 2}), nodes, rounds=2)
    assert [[c["partition"] for c in record["clients"]] for record in records] == [[0, 1], [0, 1]]
    assert sorted(nodes.queried) == [0, 1, 2]
    assert "round 0: node 114 cannot take part: partition 2: the node's partition-id is 2" in (
        caplog.text
    )
    assert "the run begins without node 114, for its 2 clients are there" in caplog.text


def test_the_owner_of_a_free_place_is_waited_for_while_another_holds_it(caplog):
    """Nodes 0 and 2 were counted; node 1 comes after them."""

    class Growing(Nodes):
        looks = 0

        def get_node_ids(self):
            self.looks += 1
            if self.looks == 5:
                self.ids[999] = 1
            return super().get_node_ids()

    nodes = Growing(1, good, properties=BEYOND)
    nodes.ids[114] = 2
    with caplog.at_level("INFO", "fedivon"):
        (record,) = start(fedivon(data={"clients": 2}), nodes)
    assert [c["partition"] for c in record["clients"]] == [0, 1]
    assert "waiting for the nodes of partitions 1" in caplog.messages
    assert sorted(nodes.queried) == [0, 1, 2]


def test_a_node_beyond_the_clients_ends_a_run_that_lacks_one():
    nodes = Nodes(1, good, properties=BEYOND)
    nodes.ids[114] = 2
    with pytest.raises(RunError, match="partition 2: .* ids count from 0"):
        start(fedivon(data={"clients": 2}, server={"node_timeout": 0.1}), nodes)


def test_a_node_that_cannot_work_is_no_spare_one():
    nodes = Nodes(3, good, properties=BEYOND | {1: {"error": "no such file: site.npz"}})
    with pytest.raises(RunError, match="partition 1: no such file: site.npz"):
        start(fedivon(data={"clients": 2}), nodes)
    own_files = {"clients": 2, "source": "nodes", "shape": [4], "num_classes": 3}
    nodes = Nodes(3, good, properties={2: {"error": "no such file: site.npz"}})
    with pytest.raises(RunError, match="partition 2: no such file: site.npz"):
        start(fedivon(data=own_files), nodes)


def test_a_node_that_joins_later_is_called_and_takes_part():
    nodes = Nodes(2, good)
    records = start(fedivon(), nodes, rounds=2, after=lambda _: nodes.ids.update({999: 2}))
    assert [len(r["clients"]) for r in records] == [2, 3]
    assert sorted(nodes.queried) == [0, 1, 2]


def test_a_node_that_comes_back_with_another_id_takes_its_place_again():
    asked = []

    def reply(partition, message):
        asked.append(message.metadata.dst_node_id)
        return good(partition, message)

    nodes = Nodes(2, reply)
    start(fedivon(), nodes, rounds=3, after=lambda _: nodes.ids.update({999: 1}))
    assert asked == [100, 107, 100, 999, 100, 999]
    # the old id, which Flower lists for a while, is not called again
    assert sorted(nodes.queried) == [0, 1, 1]


def test_a_site_that_asks_for_anothers_partition_later_on_is_refused_until_it_mends_that(caplog):
    properties = {
        0: {"name": "north"},
        1: {"name": "south"},
        2: {"name": "west", "partition-id": 1},
    }
    nodes = Nodes(2, good, properties=properties)

    def change(server_round):
        if server_round in (1, 3):
            nodes.ids[999] = 2
        elif server_round == 2:
            nodes.ids.pop(999)
            properties[2] = {"name": "west"}

    records = start(fedivon(), nodes, rounds=4, after=change)
    merged = [[client["partition"] for client in record["clients"]] for record in records]
    assert merged == [[0, 1], [0, 1], [0, 1], [0, 1, 2]]
    assert (
        "round 2: node 999 cannot take part: partition 1: two nodes ask for it (node 107 has it)"
        in caplog.text
    )


def test_the_log_has_a_line_for_every_event_with_round_site_and_reason(caplog):
    def reply(partition, message):
        if partition == 1 and message.content["config"]["round"] == 2:
            return Error(2, "out of memory")
        return good(partition, message)

    def leave_and_come(server_round):
        changes = {1: lambda: nodes.ids.pop(100), 2: lambda: nodes.ids.update({999: 0})}
        changes.get(server_round, lambda: None)()

    names = {0: {"name": "north"}, 1: {"name": "south"}}
    nodes = Nodes(3, reply, properties=names)
    with caplog.at_level("INFO", "fedivon"):
        start(fedivon(), nodes, rounds=3, after=leave_and_come)
    told = [line for line in caplog.messages if line.startswith("round ")]
    assert told == [
        "round 2: node 100 of partition 0 (north) is gone",
        "round 2: dropped the reply of partition 1 (south): out of memory",
        "round 3: node 999 joins as partition 0 (north)",
    ]
