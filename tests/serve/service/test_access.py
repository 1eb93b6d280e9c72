"""Who may use the service."""

import pytest
from tests.serve.service.asking import ask


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Bearer secre"}, 401),
        ({"authorization": "secret"}, 401),
        ({"authorization": "Basic secret"}, 401),
        ({"authorization": "Bearer sécret"}, 401),
        ({"authorization": "Bearer secret"}, 200),
        ({"authorization": "bearer secret", "host": "models.example.org"}, 200),
    ],
)
def test_a_token_is_asked_for(served, headers, status) -> None:
    async def work(guard, _):
        return await ask(guard, "/model", headers=headers), await ask(guard, "/health")

    reply, health = served(work, token="secret")
    assert reply.status == status
    assert (status == 401) == (reply.headers.get("www-authenticate") == "Bearer")
    assert health.status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("127.0.0.1", 200),
        ("[::1]:8000", 200),
        ("[::1]", 200),
        ("evil.example.org:8000", 421),
        ("localhost.evil.example.org", 421),
        ("", 421),
    ],
)
def test_without_a_token_only_names_of_this_machine_count(served, host, status) -> None:
    async def work(guard, _):
        return await ask(guard, "/model", headers={"host": host})

    assert served(work).status == status


def test_pages_of_other_sites_are_refused(served) -> None:
    async def work(guard, _):
        return await ask(guard, "/model", headers={"sec-fetch-site": "cross-site"})

    assert served(work).status == 403
