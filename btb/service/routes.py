"""The addresses of the service. Each handler takes its arguments apart, and no more."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from btb.service.answers import (
    AcceptedAnswer,
    ForecastAnswer,
    ForecastsAnswer,
    GuardAnswer,
    HealthAnswer,
    ModelsAnswer,
    OutcomeAnswer,
    PoliciesAnswer,
    ReadyAnswer,
    ReplicaAnswer,
    ReplicasAnswer,
    RouteAnswer,
)
from btb.service.bodies import MAX_NAME, AnyArrivals, OutcomeBody, ReplicaBody, RouteBody
from btb.service.intake import one_tenant
from btb.service.policy_list import list_policies
from btb.service.replicas import Replicas
from btb.service.service import Service


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _header_tenant(
    given: Annotated[str, Header(alias="X-BTB-Tenant", max_length=MAX_NAME)] = "",
) -> str:
    """Return the tenant in the header; names beyond ASCII come as UTF-8, as in bodies."""
    try:
        return given.encode("latin-1").decode()
    except UnicodeError:
        return given


Here = Annotated[Service, Depends(_service)]
HeaderTenant = Annotated[str, Depends(_header_tenant)]
QueryTenant = Annotated[str, Query(alias="tenant", max_length=MAX_NAME)]
ReplicaName = Annotated[str, Path(pattern=r"^[A-Za-z0-9._:\-]{1,128}$", examples=["10.0.0.1:8000"])]

api = APIRouter()


@api.post("/v1/arrivals", status_code=202, tags=["forecasting"])
async def post_arrivals(body: AnyArrivals, service: Here, tenant: HeaderTenant) -> AcceptedAnswer:
    """Tell of one request that came, or of several; answered once they are in the log."""
    service.check_ready()
    accepted = await service.feed.take(body, tenant)
    return AcceptedAnswer(accepted=accepted, logged=bool(service.config.log.dir))


@api.get("/v1/forecasts", tags=["forecasting"])
async def get_forecasts(
    service: Here, header: HeaderTenant, top: int = 10, tenant: QueryTenant = ""
) -> ForecastsAnswer:
    """Forecast the tenant's prefixes that were asked for most of late, hottest first."""
    return service.forecasts.top(top, one_tenant(tenant, header, ("query",)))


@api.get("/v1/forecasts/{prefix}", tags=["forecasting"])
async def get_forecast(
    prefix: str, service: Here, header: HeaderTenant, tenant: QueryTenant = ""
) -> ForecastAnswer:
    """Forecast the prefix that ends in the block with this hash, decimal or like `0x1f`."""
    return service.forecasts.one(prefix, one_tenant(tenant, header, ("query",)))


@api.post("/v1/route", tags=["routing"])
async def post_route(body: RouteBody, service: Here, tenant: HeaderTenant) -> RouteAnswer:
    """Ask where a request goes, best replica first, and what to copy."""
    service.check_ready()
    return service.router.route(body, tenant)


@api.post("/v1/outcomes", tags=["routing"])
async def post_outcome(body: OutcomeBody, service: Here, tenant: HeaderTenant) -> OutcomeAnswer:
    """Tell what came of a routed request: time to first token, hits, its end; or copies done."""
    service.check_ready()
    return service.outcomes.take(body, tenant)


@api.get("/v1/replicas", tags=["replicas"])
async def get_replicas(service: Here) -> ReplicasAnswer:
    """List the replicas, as the service knows them."""
    return Replicas(service.parts).list()


@api.get("/v1/replicas/{name}", tags=["replicas"])
async def get_replica(name: ReplicaName, service: Here) -> ReplicaAnswer:
    """Show one replica."""
    return Replicas(service.parts).show(name)


@api.put("/v1/replicas/{name}", tags=["replicas"])
async def put_replica(
    name: ReplicaName, service: Here, body: ReplicaBody | None = None
) -> ReplicaAnswer:
    """Add a replica, or tell what it says of itself; the body may be left out."""
    return Replicas(service.parts).put(name, body or ReplicaBody())


@api.delete("/v1/replicas/{name}", status_code=204, tags=["replicas"])
async def delete_replica(name: ReplicaName, service: Here) -> None:
    """Remove a replica; requests under way there may still end."""
    Replicas(service.parts).remove(name)


@api.get("/v1/policies", tags=["routing"])
async def get_policies(service: Here) -> PoliciesAnswer:
    """List the policies that there are."""
    return list_policies(service.config.policy)


@api.get("/v1/models", tags=["models"])
async def get_models(service: Here) -> ModelsAnswer:
    """Show the models in place, and how the challenger does in the champion's shadow."""
    return await service.models.show()


@api.post("/v1/models/reload", tags=["models"])
async def post_reload(service: Here) -> ModelsAnswer:
    """Look for new models now, where the present ones are from; 409 if one is refused."""
    return await service.models.reload()


@api.get("/v1/guard", tags=["routing"])
async def get_guard(service: Here) -> GuardAnswer:
    """Show whether the policy decides, and what became of its decisions."""
    state = service.parts.guard.state
    stopped = service.parts.clock.now_s() < state.stopped_until_s
    return GuardAnswer(stopped=stopped, **asdict(state))


@api.get("/healthz", tags=["operation"])
async def healthz() -> HealthAnswer:
    """Say that the process answers."""
    return HealthAnswer()


@api.get("/readyz", tags=["operation"], responses={503: {"model": ReadyAnswer}})
async def readyz(service: Here, response: Response) -> ReadyAnswer:
    """Say whether requests are taken: 503 while the log is still being read."""
    response.status_code = 200 if service.ready else 503
    seen = service.replayed
    return ReadyAnswer(
        ready=service.ready,
        replicas=len(service.parts.cluster),
        replayed_arrivals=seen.arrivals,
        replayed_bytes=seen.read_bytes,
        replay_bytes=seen.total_bytes,
        damaged_rows=seen.damaged,
        now_s=service.parts.clock.now_s(),
    )


@api.get("/metrics", tags=["operation"], response_class=Response)
async def metrics(service: Here) -> Response:
    """Show the counters in Prometheus' text format."""
    text = generate_latest(service.parts.metrics.registry)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
