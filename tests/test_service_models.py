"""New models in a running service: taken without a restart, or refused without one."""

import asyncio
import json
import logging
import os
import threading
from pathlib import Path

import httpx
import pytest

from btb.config import Config, ModelSettings
from btb.errors import ConfigError
from btb.service import keeper as keeper_module
from btb.service.keeper import Fetched, ModelKeeper
from btb.service.local import local_client, serve_process, talk
from btb.service.running import make_service
from btb.service.service import Service
from btb.tracking import load_checkpoint
from forecasting.arrival import Arrival
from forecasting.forecaster import Forecaster
from models import make_models
from models.checkpoint import Checkpoint, save, to_json
from models.checks import TYPICAL

CHAIN = (1, 2, 3, 4)
PROMPT = {"chain": list(CHAIN), "block_tokens": 512, "input_tokens": 2048}
TOKEN = "0123456789abcdef"  # noqa: S105
NEVER_S = 3600.0


def checkpoint(came: int, learner: str = "ewma", boundary_tokens: int = 2048) -> Checkpoint:
    """Make models that have seen `came` arrivals follow each of 200 labels."""
    models = make_models(learner)
    for model in models.values():
        for _ in range(200):
            model.learn_one(TYPICAL, came)
    return Checkpoint(learner, models, boundary_tokens, traces={f"came {came}": "ab12"})


def service_of(path: Path, **settings: object) -> Service:
    settings = {"poll_s": NEVER_S, **settings}
    models = ModelSettings(**settings)  # type: ignore[arg-type]
    return make_service(Config(model=str(path), policy="least_load", models=models))


async def mean_of(client: httpx.AsyncClient) -> float:
    (forecast,) = (await client.get("/v1/forecasts")).json()["forecasts"]
    return float(forecast["horizons"][3]["mean"])


async def series(client: httpx.AsyncClient, start: str) -> list[str]:
    text = (await client.get("/metrics")).text
    return [line for line in text.splitlines() if line.startswith(start)]


def test_a_new_model_answers_as_if_it_always_had_and_prefixes_stay(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    save(checkpoint(came=1), path)
    keeper = ModelKeeper(str(path), ModelSettings())
    live = keeper.make_forecaster()
    always = Forecaster(checkpoint(came=7).models)
    arrivals = [Arrival(0.1 * k, CHAIN, 512, 2048) for k in range(8)]  # no label is due
    for one in arrivals:
        live.observe(one)
        always.observe(one)
    before = live.forecast(CHAIN[-1], 0.7)
    save(checkpoint(came=7), path)
    keeper.take(keeper.fetch())
    after = live.forecast(CHAIN[-1], 0.7)
    assert before is not None
    assert after is not None
    assert after.seen == before.seen == 8
    assert after == always.forecast(CHAIN[-1], 0.7) != before
    # Labels of samples from before teach the new one.
    for forecaster in (live, always):
        forecaster.observe(Arrival(100.0, CHAIN, 512, 2048))
    assert live.forecast(CHAIN[-1], 100.0) == always.forecast(CHAIN[-1], 100.0)


def test_the_old_model_answers_while_the_new_one_is_being_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.json"
    save(checkpoint(came=1), path)
    service = service_of(path)
    begun, go_on = threading.Event(), threading.Event()

    def slowly(spec: str) -> Checkpoint:
        begun.set()
        assert go_on.wait(30.0)
        return load_checkpoint(spec)

    async def steps(client: httpx.AsyncClient) -> None:
        await client.post("/v1/arrivals", json=PROMPT)
        before = await mean_of(client)
        save(checkpoint(came=50), path)
        monkeypatch.setattr(keeper_module, "load_checkpoint", slowly)
        reload = asyncio.create_task(client.post("/v1/models/reload"))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        assert await mean_of(client) == pytest.approx(before, rel=0.2)  # a little time has passed
        go_on.set()
        assert (await reload).status_code == 200
        assert await mean_of(client) > 5.0 * before

    talk(service, steps)


def test_a_new_file_is_found_without_being_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    save(checkpoint(came=1), path)

    async def steps(client: httpx.AsyncClient) -> None:
        shown = (await client.get("/v1/models")).json()
        assert shown["champion"]["traces"] == {"came 1": "ab12"}
        save(checkpoint(came=3), path)
        async with asyncio.timeout(30.0):
            while (await client.get("/v1/models")).json()["champion"] == shown["champion"]:
                await asyncio.sleep(0.005)
        shown = (await client.get("/v1/models")).json()
        assert shown["champion"]["traces"] == {"came 3": "ab12"}
        taken = 'btb_model_loads_total{result="taken",role="champion"}'
        assert await series(client, taken) == [f"{taken} 1.0"]

    talk(service_of(path, poll_s=0.005), steps)


def newer() -> str:
    content = json.loads(to_json(checkpoint(came=3)))
    return json.dumps({**content, "version": 99})


def without_a_horizon() -> str:
    models = {h: model for h, model in checkpoint(came=3).models.items() if h != 60.0}
    return to_json(Checkpoint("ewma", models, 2048))


def of_another_feature() -> str:
    text = to_json(checkpoint(came=3))
    return text.replace('"half_life_s": 15.0', '"half_life_s": 15.5')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "no JSON"),
        ("", "no JSON"),
        (newer(), "version should be 1, got 99"),
        (to_json(checkpoint(came=3, boundary_tokens=512)), "restart btb serve to change that"),
        (without_a_horizon(), "forecasts 1, 5, 15 s ahead, and others are needed"),
        (of_another_feature(), "can't forecast 1 s ahead: KeyError: 'count_hl_15.5s'"),
    ],
    ids=["torn", "empty", "newer", "depth", "horizons", "features"],
)
def test_what_can_not_be_taken_is_refused_and_the_old_one_keeps_on(
    text: str, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "model.json"
    save(checkpoint(came=1), path)
    service = service_of(path)
    caplog.set_level(logging.INFO)

    async def steps(client: httpx.AsyncClient) -> None:
        await client.post("/v1/arrivals", json=PROMPT)
        path.write_text(text, encoding="utf-8")
        answer = await client.post("/v1/models/reload")
        assert answer.status_code == 409
        assert reason in answer.json()["detail"]
        shown = (await client.get("/v1/models")).json()
        assert shown["champion"]["traces"] == {"came 1": "ab12"}
        assert reason in shown["refused"]["champion"]
        assert 0.0 < await mean_of(client) < 100.0
        refused = 'btb_model_loads_total{result="refused",role="champion"}'
        assert await series(client, refused) == [f"{refused} 1.0"]
        keeper = service.models.keeper
        assert keeper is not None
        await keeper.reload(again=False)  # as every poll does: the same file is not tried again
        assert await series(client, refused) == [f"{refused} 1.0"]
        lines = [one for one in caplog.messages if one.startswith("refused a champion")]
        assert len(lines) == 1
        save(checkpoint(came=3), path)
        assert (await client.post("/v1/models/reload")).json()["refused"] == {}

    talk(service, steps)


def test_a_file_that_is_gone_and_comes_back_is_no_news(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "model.json", tmp_path / "elsewhere"
    save(checkpoint(came=1), path)
    keeper = ModelKeeper(str(path), ModelSettings())
    models = keeper.champion.models
    path.rename(elsewhere)
    keeper.take(keeper.fetch())
    assert "is not there any more" in keeper.refusals["champion"]
    elsewhere.rename(path)
    keeper.take(keeper.fetch())
    assert keeper.refusals == {}
    assert keeper.champion.models is models


def test_a_link_that_leads_elsewhere_is_news(tmp_path: Path) -> None:
    for came in (1, 2):
        save(checkpoint(came), tmp_path / f"{came}.json")
    link = tmp_path / "champion.json"
    link.symlink_to("1.json")
    keeper = ModelKeeper(str(link), ModelSettings())
    other = tmp_path / "other"
    other.symlink_to("2.json")
    os.replace(other, link)
    keeper.take(keeper.fetch())
    assert keeper.champion.traces == {"came 2": "ab12"}


def test_a_model_that_ships_with_us_never_changes_and_the_start_needs_a_good_one(
    tmp_path: Path,
) -> None:
    keeper = ModelKeeper("ewma", ModelSettings())
    models = keeper.champion.models
    keeper.take(keeper.fetch())
    assert keeper.champion.models is models
    bad = tmp_path / "bad.json"
    bad.write_text("{}", encoding="utf-8")
    for spec in (bad, tmp_path / "none.json"):
        with pytest.raises(ConfigError):
            ModelKeeper(str(spec), ModelSettings())


def test_a_challenger_comes_from_a_file_and_leaves_with_it(tmp_path: Path) -> None:
    path, rival = tmp_path / "model.json", tmp_path / "rival.json"
    save(checkpoint(came=1), path)
    rival.write_text("{", encoding="utf-8")
    service = service_of(path, challenger=str(rival))  # a bad one is no reason not to start

    async def steps(client: httpx.AsyncClient) -> None:
        shown = (await client.get("/v1/models")).json()
        assert shown["challenger"] is None
        assert "no JSON" in shown["refused"]["challenger"]
        save(checkpoint(came=2, learner="hawkes"), rival)
        shown = (await client.post("/v1/models/reload")).json()
        assert shown["challenger"]["learner"] == "hawkes"
        assert shown["verdict"].startswith("too little to tell: 0 minutes")
        forecaster = service.parts.forecaster
        for k in range(60):  # an hour and more, in which one comes each minute, and then one more
            forecaster.observe(Arrival(1000.0 + 61.0 * k, CHAIN, 512, 2048))
            forecaster.observe(Arrival(1000.5 + 61.0 * k, CHAIN, 512, 2048))
        shown = (await client.get("/v1/models")).json()
        by_horizon = {one["horizon_s"]: one for one in shown["standings"]}
        assert by_horizon.keys() == {1.0, 5.0, 15.0, 60.0}
        assert by_horizon[15.0]["labels"] == 118
        assert by_horizon[15.0]["minutes"] >= 59
        change = by_horizon[15.0]["challenger"] / by_horizon[15.0]["champion"] - 1.0
        assert by_horizon[15.0]["change"] == pytest.approx(change)
        assert by_horizon[15.0]["low"] <= change <= by_horizon[15.0]["high"]
        assert shown["verdict"].startswith("Poisson deviance at 15 s")
        (deviance,) = await series(client, 'btb_shadow_deviance{horizon_s="15",role="challenger"}')
        assert float(deviance.split()[1]) == pytest.approx(by_horizon[15.0]["challenger"])
        assert await series(client, "btb_shadow_labels") != []
        rival.unlink()
        shown = (await client.post("/v1/models/reload")).json()
        assert (shown["challenger"], shown["standings"]) == (None, [])
        assert await series(client, "btb_shadow_deviance{") == []

    talk(service, steps)


def test_a_challenger_that_was_dismissed_is_tried_again_when_asked_for(tmp_path: Path) -> None:
    path, rival = tmp_path / "model.json", tmp_path / "rival.json"
    for file in (path, rival):
        save(checkpoint(came=1), file)
    service = service_of(path, challenger=str(rival))
    keeper = service.models.keeper
    assert keeper is not None

    def fail(_: object) -> None:
        raise ZeroDivisionError("a bug in somebody's model")

    async def steps(client: httpx.AsyncClient) -> None:
        keeper.stage.in_shadow(fail)
        shown = (await client.get("/v1/models")).json()
        assert shown["challenger"] is None
        assert "dismissed: ZeroDivisionError" in shown["refused"]["challenger"]
        await keeper.reload(again=False)
        assert keeper.stage.shadow is None
        shown = (await client.post("/v1/models/reload")).json()
        assert shown["challenger"]["source"] == str(rival)
        assert shown["refused"] == {}

    talk(service, steps)


def test_a_challenger_that_takes_over_is_in_nobodys_shadow(tmp_path: Path) -> None:
    path, rival = tmp_path / "model.json", tmp_path / "rival.json"
    for file in (path, rival):
        save(checkpoint(came=1), file)
    keeper = ModelKeeper(str(path), ModelSettings(challenger=str(rival)))
    fetched = Fetched(taken={"champion": keeper.loaded["challenger"]})
    fetched.refused["challenger"] = "the registry went away just then"
    keeper.take(fetched)
    assert keeper.loaded.keys() == {"champion"}
    assert keeper.loaded["champion"].exact == str(rival)
    assert keeper.stage.shadow is None  # else one model would learn everything twice


def test_a_bad_challenger_that_is_gone_is_refused_no_more(tmp_path: Path) -> None:
    path, rival = tmp_path / "model.json", tmp_path / "rival.json"
    save(checkpoint(came=1), path)
    rival.write_text("{", encoding="utf-8")
    keeper = ModelKeeper(str(path), ModelSettings(challenger=str(rival)))
    assert keeper.refusals.keys() == {"challenger"}
    rival.unlink()
    keeper.take(keeper.fetch())
    assert keeper.refusals == {}


def test_reloading_needs_the_token(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    save(checkpoint(came=1), path)

    async def ask() -> None:
        async with local_client(service_of(path), token=TOKEN) as client:
            for method, address in (("POST", "/v1/models/reload"), ("GET", "/v1/models")):
                assert (await client.request(method, address)).status_code == 401
                headers = {"Authorization": f"Bearer {TOKEN}"}
                answer = await client.request(method, address, headers=headers)
                assert answer.status_code == 200

    asyncio.run(ask())


def test_a_process_takes_a_new_file_and_survives_a_broken_one(tmp_path: Path) -> None:
    path, config = tmp_path / "model.json", tmp_path / "btb.toml"
    save(checkpoint(came=1), path)
    config.write_text("[models]\npoll_s = 0.05\n", encoding="utf-8")
    options = ("--model", str(path), "--config", str(config))
    with serve_process(*options) as (process, url), httpx.Client(trust_env=False) as client:
        client.post(f"{url}/v1/arrivals", json=PROMPT).raise_for_status()
        for text, traces in ((to_json(checkpoint(came=5)), "came 5"), ("{", "came 5")):
            path.write_text(text, encoding="utf-8")
            answer = client.post(f"{url}/v1/models/reload")
            assert answer.status_code == (200 if text != "{" else 409)
            shown = client.get(f"{url}/v1/models").json()
            assert list(shown["champion"]["traces"]) == [traces]
            (forecast,) = client.get(f"{url}/v1/forecasts").json()["forecasts"]
            assert forecast["seen"] == 1
        assert process.poll() is None
