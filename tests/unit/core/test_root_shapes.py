"""Which roots a host reaches, and that data below any other root is found, with few requests."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_gcs.layout import first_after, root_of
from a2a_gcs.objectstore.instrument import InstrumentedStore
from a2a_gcs.objectstore.memory import MemoryStore
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.root_shapes import MOST_NAMES, Hosting, RootShape, Survey, unreached

HOSTINGS = [
    Hosting(several_agents=several, authenticated=authenticated)
    for several, authenticated in itertools.product((False, True), repeat=2)
]
DATA = ("tasks/t/contextId.txt", "contexts/c/context.json")


def roots():
    """Every shape of a root, by the name of its agent, tenant and owner."""
    for agent, tenant, owner in itertools.product(("", "a"), ("", "t"), ("", "u")):
        yield RootShape(bool(agent), bool(tenant), bool(owner)), root_of(agent=agent, tenant=tenant, owner=owner)


async def filled(*keys):
    store = MemoryStore()
    for key in keys:
        await store.put(key, b"x", OVERWRITE)
    return store


def below(root, key):
    return f"{root}/{key}" if root else key


@pytest.mark.parametrize("hosting", HOSTINGS, ids=str)
async def test_data_is_found_below_each_root_that_no_call_reaches_and_below_no_other(hosting):
    """All eight shapes of roots, with a task or with a context: two are reached, with and without a tenant."""
    reached = 0
    for shape, root in roots():
        for key in DATA:
            found = await Survey(await filled(below(root, key))).elsewhere(hosting)
            assert (found is not None) == (shape in unreached(hosting)), below(root, key)
            assert found is None or found.root == root
        reached += shape not in unreached(hosting)
    assert reached == 2


@pytest.mark.parametrize("hosting", HOSTINGS, ids=str)
async def test_what_is_reached_hides_nothing_that_is_not(hosting):
    """A stranger is found in a bucket that also holds all that the host may see."""
    mine = [below(root, key) for shape, root in roots() for key in DATA if shape not in unreached(hosting)]
    assert await Survey(await filled(*mine)).elsewhere(hosting) is None
    for shape, root in roots():
        if shape in unreached(hosting):
            found = await Survey(await filled(*mine, below(root, DATA[0]))).elsewhere(hosting)
            assert found is not None, root


async def test_the_requests_are_few_however_much_there_is():
    """Four lists without agents and tenants, however many tasks; and a bound for many of them."""
    store = InstrumentedStore(await filled(*(f"tasks/{n}/contextId.txt" for n in range(50))))
    await Survey(store).elsewhere(Hosting(several_agents=False, authenticated=False))
    assert store.stats.class_a <= 4
    names = [
        f"agents/a{a:02}/tenants/t{t:02}/users/u{n}/tasks/t/x" for a in range(20) for t in range(20) for n in (1, 2)
    ]
    store = InstrumentedStore(await filled(*names))
    assert await Survey(store).elsewhere(Hosting(several_agents=True, authenticated=True)) is None
    assert store.stats.class_a <= 4 * MOST_NAMES**2


@given(st.text("a/0.-", min_size=1), st.text("a/0.-"))
def test_the_first_key_after_a_folder_is_after_all_of_it(name, rest):
    """And before nothing else: what sorts after the folder's keys is not skipped."""
    folder = f"{name}/"
    assert folder + rest < first_after(folder)
    other = name + rest
    assert other.startswith(folder) or not folder <= other < first_after(folder)


async def test_each_tenant_is_looked_below():
    """Not only the first one: what one tenant holds is skipped, and the next one's data is found."""
    mine = [f"tenants/{name}/users/u/tasks/{n}/x" for name in ("a", "a-b", "a.c") for n in range(3)]
    found = await Survey(await filled(*mine, "tenants/d/tasks/t/x")).elsewhere(
        Hosting(several_agents=False, authenticated=True)
    )
    assert found == ("tenants/d/tasks/", "tenants/d")
