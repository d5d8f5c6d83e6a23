"""Process that trains a few steps and reports the time of each stage since its start.

``test_cold_start.py`` passes the monotonic time before its start (one clock for all processes), the
device, and a resolved configuration on standard input. It writes one JSON object: seconds by stage
in order, the losses, and the monotonic time at the end; or else what package is missing.
"""

import time

_STARTED_NS = time.monotonic_ns()

import json  # noqa: E402 # imports are timed
import sys  # noqa: E402 # the same

STEADY_STEPS = 5  # also in test_cold_start.py; enough for a mean, not measured


class Stages:
    """Seconds by stage, each from the end of the one before."""

    def __init__(self, started_ns):
        self.seconds = {}
        self.last_ns = started_ns

    def end(self, name, at_ns=None):
        """End the stage `name` now."""
        now_ns = time.monotonic_ns() if at_ns is None else at_ns
        self.seconds[name] = (now_ns - self.last_ns) * 1e-9
        self.last_ns = now_ns


def build(workload, **options):
    """Build the model, or report the package that it lacks and exit."""
    from gpubench_plugin.core.errors import MissingPackage
    from gpubench_plugin.training.model import build_model

    try:
        return build_model(workload, **options)
    except MissingPackage as error:
        missing = {key: getattr(error, key) for key in ("problem", "package", "install")}
        json.dump({"missing_package": missing}, sys.stdout)
        sys.exit()


def main(started_ns, device_name):
    """Train, and report."""
    stages = Stages(started_ns)
    stages.end("interpreter", _STARTED_NS)
    import torch

    stages.end("import_torch")
    from gpubench_plugin.config.sections import Configuration
    from gpubench_plugin.core import catalog
    from gpubench_plugin.environment.devices import synchronize
    from gpubench_plugin.training.compile import loss_function
    from gpubench_plugin.training.optimization import Optimization

    data = json.load(sys.stdin)
    kind = catalog.load("workloads", data["model"]["name"])
    configuration = Configuration[kind.Section].model_validate_json(json.dumps(data))
    precision = catalog.load("precision", configuration.precision.name)()
    stages.end("import_workload")
    device = torch.device(device_name)
    if device.type != "cpu":
        torch.zeros(1, device=device)
        synchronize(device)
        stages.end("device_init")
    torch.manual_seed(configuration.experiment.seed)
    with precision.switches():
        workload = kind(configuration.model)
        model = build(
            workload,
            seed=configuration.experiment.seed,
            device=device,
            precision=precision,
        )
        batch = precision.convert_batch(
            workload.synthetic_batch(configuration.training.samples, device=device)
        )
        scaler = precision.scaler(
            device,
            init_scale=configuration.precision.init_scale,
            growth_interval=configuration.precision.growth_interval,
        )
        optimization = Optimization(
            model.train().parameters(),
            training=configuration.training,
            device=device,
            scaler=scaler,
        )
        synchronize(device)
        stages.end("model_build")
        losses, loss_of = [], loss_function(model, workload)

        def backward():
            with precision.forward_context(device):
                loss = loss_of(model, batch)
            optimization.backward(loss)
            losses.append(loss.detach())

        if configuration.model.compile != "none":
            backward()
            model.zero_grad(set_to_none=True)
            synchronize(device)
            stages.end("compile")
        backward()
        optimization.update()
        synchronize(device)
        stages.end("first_step")
        for _ in range(STEADY_STEPS):
            backward()
            optimization.update()
        synchronize(device)
        stages.end("steady_steps")
        report = {
            "stages": stages.seconds,
            "losses": [float(loss) for loss in losses],
            "ended_ns": stages.last_ns,
        }
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
