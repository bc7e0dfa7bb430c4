"""From settings to a service that listens: what `btb serve` does."""

import socket

import uvicorn

from btb.config import Config, Limits, Server
from btb.errors import ConfigError
from btb.service.app import make_app
from btb.service.guard import is_loopback
from btb.service.service import Service
from btb.simulation.setups import SETUPS
from btb.token_file import MIN_TOKEN, read_token_file
from btb.tracking import load_checkpoint
from forecasting.forecaster import Forecaster
from models import MODELS, make_models
from policies import make_policy
from policies.errors import PolicyError

STOP_S = 10
"""How long requests under way may take when the service stops."""


def make_service(config: Config) -> Service:
    """Return the service that `config` describes, not started.

    Raises
    ------
    ConfigError
        If the setup, the model, the policy or one of its parameters is unknown, or the log can't
        be used.
    """
    if config.setup not in SETUPS:
        known = ", ".join(sorted(SETUPS))
        raise ConfigError(f"no setup is called {config.setup!r}; known are {known}")
    try:
        policy = make_policy(config.policy, seed=config.seed, **config.policy_parameters)
    except PolicyError as error:
        raise ConfigError(str(error)) from error
    return Service(config, policy, make_forecaster(config.model))


def make_forecaster(model: str) -> Forecaster:
    """Return a forecaster with fresh models by name, or with those of a checkpoint, at its depth.

    Raises
    ------
    ConfigError
        If there is no such model or checkpoint.
    """
    if model in MODELS:
        return Forecaster(make_models(model))
    start = load_checkpoint(model)
    return Forecaster(start.models, boundary_tokens=start.boundary_tokens)


def read_token(server: Server) -> str:
    """Return the token that requests need, "" for none.

    Raises
    ------
    ConfigError
        If the file can't be read or holds no fit token, or there is none and others than this
        machine could reach the service.
    """
    if not server.token_file:
        if not is_loopback(server.host):
            raise ConfigError(
                f"host {server.host} can be reached from elsewhere: give --token-file, a file with "
                f"a secret of {MIN_TOKEN} characters or more, or listen on 127.0.0.1"
            )
        return ""
    return read_token_file(server.token_file)


def bind(server: Server) -> socket.socket:
    """Return a socket that is bound to the service's address.

    Raises
    ------
    ConfigError
        If the address is unknown or in use.
    """
    try:
        family = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)[0][0]
        # With its protocol named, as asyncio sends at once (TCP_NODELAY) on no other: 40 ms saved.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise ConfigError(f"host {server.host}: {error.strerror or error}") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((server.host, server.port))
    except OSError as error:
        bound.close()
        raise ConfigError(f"{server.host}:{server.port}: {error.strerror}") from error
    return bound


def address(bound: socket.socket) -> str:
    """Return the URL of what listens on `bound`."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listen(service: Service, token: str, bound: socket.socket, limits: Limits) -> None:
    """Serve on `bound` until a signal says stop."""
    settings = uvicorn.Config(
        make_app(service, token),
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        limit_concurrency=limits.connections,
        timeout_graceful_shutdown=STOP_S,
    )
    uvicorn.Server(settings).run(sockets=[bound])
