"""`completion`: a script that teaches a shell what may stand where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.cli import flags

if TYPE_CHECKING:
    from rootcellar.cli.context import Context

BASH = """\
_rootcellar() {
    local IFS=$'\\n'
    COMPREPLY=($(rootcellar complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -o bashdefault -F _rootcellar rootcellar
"""

ZSH = """\
#compdef rootcellar
_rootcellar() {
    local -a found
    found=(${(f)"$(rootcellar complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -a found; else _files; fi
}
compdef _rootcellar rootcellar
"""

FISH = """\
function __rootcellar
    rootcellar complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null
end
complete -c rootcellar -a '(__rootcellar)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def run(context: Context) -> int:
    """Print the script."""
    context.console.out.write(SCRIPTS[context.arguments.needed(flags.SHELL)])
    return 0
