"""What ansible-core makes of inventories: reads one request a line, and writes one answer a line.

A request names sources and patterns. The answer has what `ansible-inventory --list` prints, with and
without `--export`, the hosts of each pattern, and what the expressions of variables stand for. One
process answers many requests, because starting one takes a second."""

import json
import sys

from ansible import context
from ansible.cli.inventory import InventoryCLI
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager, split_host_pattern
from ansible.module_utils.common.collections import ImmutableDict
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import VaultSecret, VaultSecretsContext
from ansible.template import Templar
from ansible.vars.manager import VariableManager


def arguments(**given):
    names = ["yaml", "toml", "export", "basedir", "host", "subset", "extra_vars", "tags"]
    context.CLIARGS = ImmutableDict({**dict.fromkeys(names), "extra_vars": (), **given})


def listed(cli, export):
    arguments(export=export)
    top = cli._get_group("all")
    return json.loads(InventoryCLI.dump(cli.json_inventory(top)))


def is_unmatched(manager, pattern):
    """Whether a part of a pattern names no host and no group, which the original only warns of."""
    for part in split_host_pattern(pattern):
        part = part.lstrip("&!")
        if not part:
            return True
        if part in manager.hosts:
            continue
        expression, _ = manager._split_subscript(part)
        if manager._match_list(manager.groups, expression):
            continue
        if all(host.implicit for host in manager._enumerate_matches(expression)):
            return True
    return False


def hosts_of(manager, pattern):
    try:
        if is_unmatched(manager, pattern):
            return None
        names = [host.name for host in manager.get_hosts(pattern)]
    except AnsibleError:
        return None
    return names or None


def values_of(loader, variables, host):
    found = variables.get_vars(host=host, include_hostvars=False, stage="all")
    templar = Templar(loader=loader, variables=found)
    values = {}
    for name in found:
        if not name.startswith("t"):
            continue
        try:
            values[name] = {"value": json.loads(json.dumps(templar.template(found[name]), default=str))}
        except Exception as error:
            values[name] = {"error": str(error).split("\n")[0]}
    return values


def answer(request):
    arguments()
    loader = DataLoader()
    secrets = [("default", VaultSecret(request["password"].encode()))]
    loader.set_vault_secrets(secrets)
    # Expressions that name encrypted values read the secrets of the process.
    VaultSecretsContext._current = None
    VaultSecretsContext.initialize(VaultSecretsContext(secrets))
    manager = InventoryManager(loader=loader, sources=request["sources"])
    variables = VariableManager(loader=loader, inventory=manager)
    cli = InventoryCLI(["ansible-inventory", "--list"])
    cli.loader, cli.inventory, cli.vm = loader, manager, variables
    return {
        "list": listed(cli, False),
        "export": listed(cli, True),
        "patterns": [hosts_of(manager, pattern) for pattern in request["patterns"]],
        "values": {
            name: values_of(loader, variables, host) for name, host in manager.hosts.items()
        },
    }


def main():
    for line in sys.stdin:
        try:
            result = answer(json.loads(line))
        except AnsibleError as error:
            result = {"error": str(error)}
        print(json.dumps(result), flush=True)


main()
