"""Workers of Flower's simulation that die, with their process or their machine.

Flower puts a dead worker back among the idle ones, where it would be the first to be asked again
and lose message after message. Here it costs the client that it played, and no more: a new worker
is started in its place, and takes part as soon as there is room for it in the cluster. Until then
messages wait for the others.
"""

from __future__ import annotations

import threading
import time
from importlib import import_module
from typing import Any

from fedivon_app.node.flower import Name, missing

ACTORS = "flwr.simulation.ray_transport.ray_actor"
POOL = "BasicActorPool"
NAMES = (
    Name(ACTORS, f"{POOL}.submit", ("self", "actor_fn", "job")),
    Name(ACTORS, f"{POOL}.add_actor_back_to_pool", ("self", "future")),
    Name(ACTORS, f"{POOL}.fetch_result_and_return_actor_to_pool", ("self", "future")),
    Name("flwr.clientapp.client_app", "ClientAppException", ("message",)),
)
LOOK = 0.05  # seconds between two looks for a worker that is free


def outlive_lost_workers() -> None:
    """Let Flower's simulation go on without workers that died; leave an unknown Flower alone."""
    if missing(NAMES):
        return
    stock = getattr(import_module(ACTORS), POOL)
    if not hasattr(stock, "lost"):
        _mend(stock)


def _mend(pool: Any) -> None:
    import ray
    from flwr.clientapp.client_app import ClientAppException
    from ray.exceptions import RayError, RayTaskError

    submit = pool.submit
    give_back = pool.add_actor_back_to_pool
    fetch = pool.fetch_result_and_return_actor_to_pool
    free = threading.Lock()
    counting = threading.Lock()

    def submit_to_a_free_one(self: Any, actor_fn: Any, job: Any) -> Any:
        with free:
            while not self.pool:
                if self.lost == self.num_actors:
                    raise ClientAppException("all workers of the simulation have died")
                time.sleep(LOOK)
            return submit(self, actor_fn, job)

    def fetch_or_note(self: Any, future: Any) -> Any:
        try:
            return fetch(self, future)
        except RayTaskError:  # the client raised, and its worker is well
            raise
        except RayError:
            replace(self, future)
            raise ClientAppException("the worker that played this client died") from None

    def give_back_if_alive(self: Any, future: Any) -> None:
        if future in self._future_to_actor:
            give_back(self, future)

    def replace(self: Any, future: Any) -> None:
        dead = self._future_to_actor.pop(future)
        with counting:
            self.lost += 1
        threading.Thread(target=hire, args=(self, dead), daemon=True).start()

    def hire(self: Any, dead: Any) -> None:
        try:
            ray.kill(dead)
            actor = self.create_actor_fn()
            ray.get(actor.__ray_ready__.remote())
        except Exception:  # the run has ended meanwhile, or nothing can be started any more
            return
        with counting:
            self.lost -= 1
        self.pool.append(actor)

    pool.lost = 0
    pool.submit = submit_to_a_free_one
    pool.add_actor_back_to_pool = give_back_if_alive
    pool.fetch_result_and_return_actor_to_pool = fetch_or_note
