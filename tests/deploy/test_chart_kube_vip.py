"""The chart's kube-vip and the controller: the classes that kube-vip serves, and the announcer of the controller."""

from pathlib import Path

import pytest

from devenv.helm import NAMESPACE, RELEASE, run_helm
from devenv.process import DevenvError
from devenv.restclient import Json
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.names import LOAD_BALANCER_CLASS
from tests.deploy.published import SAME_KUBE_VIP, write_published_chart
from tests.deploy.test_chart_rendering import arguments, objects_of, render, the, upgraded

CLASS_NAME = "kube-vip.env.lb_class_name"
CLASS_ONLY = "kube-vip.env.lb_class_only=true"
NOT_LEGACY = "kube-vip.env.lb_class_legacy_handling=false"
OPTIONAL = "kube-vip.harvesterClass=optional"
REQUIRED = "kube-vip.harvesterClass=required"
REQUIRE = "--require-load-balancer-class"


def pod_template(objects: list[Json]) -> Json:
    template: Json = the(objects, "DaemonSet", "kube-vip")["spec"]["template"]
    return template


def environment(objects: list[Json]) -> list[tuple[str, str]]:
    container = pod_template(objects)["spec"]["containers"][0]
    return [(variable["name"], variable["value"]) for variable in container["env"]]


def announcer(*settings: str, case: str = "default") -> str:
    """Return the value of ``--announcer`` in the arguments of the controller; empty without the flag."""
    flag = "--announcer="
    found = [argument.removeprefix(flag) for argument in arguments(render(*settings, case=case)) if flag in argument]
    assert len(found) <= 1, found
    return "".join(found)


@pytest.mark.parametrize(
    "setting", ["", "kube-vip.harvesterClass=none", "announcer=auto", "kube-vip.harvesterClass=null"]
)
def test_kube_vip_does_not_restart_by_default(setting: str, tmp_path: Path) -> None:
    """A pod template that differs from the published one restarts kube-vip, and addresses are down meanwhile."""
    published = run_helm("template", RELEASE, write_published_chart(tmp_path, SAME_KUBE_VIP), "--namespace", NAMESPACE)
    ours = render(*filter(None, [setting]))
    assert pod_template(objects_of(published)) == pod_template(ours)
    assert "lb_class_name" not in dict(environment(ours))


@pytest.mark.parametrize("setting", [OPTIONAL, REQUIRED])
def test_harvester_class_changes_only_the_class_of_kube_vip(setting: str) -> None:
    changed = environment(render(setting))
    assert changed == sorted([*environment(render()), ("lb_class_name", LOAD_BALANCER_CLASS)])
    by_hand = f"{CLASS_NAME}={LOAD_BALANCER_CLASS}"
    assert pod_template(render(by_hand)) == pod_template(render(setting)) == pod_template(render(setting, by_hand))


def test_required_class_is_required_by_the_controller() -> None:
    assert REQUIRE in arguments(render(REQUIRED))
    for settings in ((), (OPTIONAL,), (f"{CLASS_NAME}={LOAD_BALANCER_CLASS}",)):
        assert REQUIRE not in arguments(render(*settings))


ARP: dict[str, tuple[str, ...]] = {
    "default": (),
    "spelling of Go": ("kube-vip.env.vip_arp=T", "kube-vip.env.svc_enable=1", "kube-vip.env.bgp_enable=False"),
    "empty is unset": ("kube-vip.env.vip_wireguard=",),
    "all nodes, elections": ("kube-vip.runOn=all", "kube-vip.env.svc_election=true"),
    "own class": (OPTIONAL,),
    "by flags": (
        "kube-vip.env.vip_arp=",
        "kube-vip.env.svc_enable=",
        "kube-vip.extraArgs.arp=null",
        "kube-vip.extraArgs.services=true",
        "kube-vip.extraArgs.bgp=false",
    ),
    "another variable from a Secret": ("kube-vip.envValueFrom.vip_nodename.fieldRef.fieldPath=spec.nodeName",),
    "only Services with a class, as the controller": (REQUIRED, CLASS_ONLY),
}
NOT_ARP: dict[str, tuple[str, ...]] = {
    "no kube-vip": ("kube-vip.enabled=false",),
    "no ARP": ("kube-vip.env.vip_arp=false",),
    "no ARP, unset": ("kube-vip.env.vip_arp=null",),
    "no Services": ("kube-vip.env.svc_enable=false",),
    "BGP": ("kube-vip.env.bgp_enable=true",),
    "routing table": ("kube-vip.env.vip_routingtable=true",),
    "WireGuard": ("kube-vip.env.vip_wireguard=true",),
    "writes nothing": ("kube-vip.env.disable_service_updates=true",),
    "BGP by flag": ("kube-vip.extraArgs.bgp=true",),
    "routing table by flag": ("kube-vip.extraArgs.table=true",),
    "WireGuard by flag": ("kube-vip.extraArgs.wireguard=true",),
    "writes nothing, by flag": ("kube-vip.extraArgs.disableServiceUpdates=true",),
    "mode from a Secret": ("kube-vip.envValueFrom.bgp_enable.secretKeyRef.name=s",),
    "any variable from a Secret": ("kube-vip.envFrom[0].secretRef.name=s",),
    "a file of settings": ("kube-vip.extraArgs.config-file=/etc/kube-vip.yaml",),
    "the Services of another controller": (f"{CLASS_NAME}=example.com/other", CLASS_ONLY),
}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        *(pytest.param(settings, "kube-vip", id=name) for name, settings in ARP.items()),
        *(pytest.param(settings, "", id=name) for name, settings in NOT_ARP.items()),
        pytest.param(("announcer=other",), "other", id="value, other"),
        pytest.param(("announcer=auto",), "auto", id="value, auto"),
        pytest.param(("announcer=kube-vip", "kube-vip.enabled=false"), "kube-vip", id="value, another kube-vip"),
    ],
)
def test_announcer_is_kube_vip_only_if_the_chart_runs_one_that_notes_its_node(
    settings: tuple[str, ...], expected: str
) -> None:
    assert announcer(*settings) == expected


def test_announcer_in_extra_args_takes_precedence() -> None:
    args = arguments(render("extraArgs={--announcer=other}"))
    assert args.index("--announcer=kube-vip") < args.index("--announcer=other")


@pytest.mark.parametrize("settings", [(), (REQUIRED,), ("announcer=other",)])
def test_program_accepts_the_arguments(settings: tuple[str, ...]) -> None:
    services = build_settings(parse_command_line(arguments(render(*settings))), {}).services
    assert services.class_only is (settings == (REQUIRED,))
    assert services.announcer == ("other" if settings == ("announcer=other",) else "kube-vip")


OTHER_CLASS = f"{CLASS_NAME}=example.com/other"
CONTRADICTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "another class by hand": (
        (OPTIONAL, OTHER_CLASS),
        r"kube-vip\.harvesterClass is optional.*env\.lb_class_name is .example\.com/other.*Remove one of the two",
    ),
    "empty class by hand": (
        (REQUIRED, f"{CLASS_NAME}="),
        r"kube-vip\.harvesterClass is required.*Remove one of the two",
    ),
    "another class by flag": (
        (OPTIONAL, "kube-vip.extraArgs.lbClassName=example.com/other"),
        r"lbClassName .*example\.com/other.*Remove one of the two",
    ),
    "class from a Secret": (
        (OPTIONAL, "kube-vip.envValueFrom.lb_class_name.secretKeyRef.name=s"),
        r"kube-vip\.envValueFrom\.lb_class_name.*Remove one of the two",
    ),
    "without kube-vip": (
        (REQUIRED, "kube-vip.enabled=false"),
        r"kube-vip\.harvesterClass is required, but kube-vip\.enabled is false.*lb_class_name.*extraArgs=\{--require",
    ),
    "no class, lb_class_only": (
        (CLASS_ONLY,),
        r"lb_class_only is on .*no Service without a class.*kube-vip\.harvesterClass=required",
    ),
    "no class, lb_class_only by flag": (("kube-vip.extraArgs.lbClassOnly=true",), "lb_class_only is on"),
    "optional class, lb_class_only": ((OPTIONAL, CLASS_ONLY), "lb_class_only is on .*harvesterClass=required"),
    "no legacy handling": ((NOT_LEGACY,), "lb_class_legacy_handling is off .*no Service without a class"),
    "class is required, kube-vip has another": (
        (f"extraArgs={{{REQUIRE}}}",),
        rf"{REQUIRE} is set.*kube-vip announces only the class kube-vip\.io/kube-vip-class.*harvesterClass=required",
    ),
}


@pytest.mark.parametrize(("settings", "message"), CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_contradiction_of_classes_is_an_error(settings: tuple[str, ...], message: str) -> None:
    with pytest.raises(DevenvError, match=message):
        render(*settings)


@pytest.mark.parametrize(
    "settings",
    [
        (REQUIRED, CLASS_ONLY),
        (REQUIRED, NOT_LEGACY),
        (REQUIRED, f"extraArgs={{{REQUIRE}}}"),
        (f"{CLASS_NAME}={LOAD_BALANCER_CLASS}", f"extraArgs={{{REQUIRE}}}", CLASS_ONLY),
        (OPTIONAL, CLASS_ONLY, f"extraArgs={{{REQUIRE}=true}}"),
        (OPTIONAL, CLASS_ONLY, f"extraArgs={{{REQUIRE}=T,--v=4}}"),
        (NOT_LEGACY, f"{CLASS_NAME}="),
        (OTHER_CLASS, CLASS_ONLY),
        (OTHER_CLASS, f"extraArgs={{{REQUIRE}}}"),
        (f"extraArgs={{{REQUIRE}=false}}",),
        (CLASS_ONLY, "kube-vip.env.svc_enable=false"),
        (CLASS_ONLY, "kube-vip.enabled=false"),
    ],
    ids=str,
)
def test_settings_of_classes_that_do_not_contradict(settings: tuple[str, ...]) -> None:
    """A class that is set by hand and is not this controller's means that kube-vip announces for another one."""
    assert arguments(render(*settings))


def test_upgrade_of_a_published_chart_continues_with_its_settings_of_kube_vip() -> None:
    for setting in (CLASS_ONLY, NOT_LEGACY):
        assert "--announcer" not in upgraded(setting), "kube-vip announces no Service of this controller"
    with pytest.raises(DevenvError, match="lb_class_only is on"):
        upgraded(CLASS_ONLY, OPTIONAL)


@pytest.mark.parametrize(
    ("setting", "place"),
    [("announcer=metallb", "/announcer"), ("kube-vip.harvesterClass=x/y", "/kube-vip/harvesterClass")],
)
def test_schema_has_the_values(setting: str, place: str) -> None:
    with pytest.raises(DevenvError, match=f"at '{place}'"):
        render(setting)
