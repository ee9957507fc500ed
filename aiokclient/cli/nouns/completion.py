"""The commands that print the completion scripts of shells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokclient.cli.grammar import Command
from aiokclient.cli.output import write_text

if TYPE_CHECKING:
    from argparse import Namespace

# The shell splits words at the characters of COMP_WORDBREAKS, too, such as in topic:orders, and
# replaces only what comes after the last one.
BASH = r"""# Completion of aiokclient for bash: source <(aiokclient completion bash)
_aiokclient() {
    local IFS=$'\n' line=${COMP_LINE:0:COMP_POINT}
    local typed=${line##*[[:space:]]} breaks=${COMP_WORDBREAKS//[^:=]/} start=
    COMPREPLY=($(aiokclient __complete "$line" 2>/dev/null))
    if [[ ${COMPREPLY[0]-} == :files ]]; then
        COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
        compopt -o filenames 2>/dev/null
        return
    fi
    if [[ -n $breaks && $typed == *[$breaks]* ]]; then
        start=${typed%"${typed##*[$breaks]}"}
    fi
    COMPREPLY=("${COMPREPLY[@]#"$start"}")
    if [[ ${COMPREPLY[0]-} == *[:=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -F _aiokclient aiokclient
"""
ZSH = r"""#compdef aiokclient
# Completion of aiokclient for zsh: source <(aiokclient completion zsh), after compinit
_aiokclient() {
    local -a found open closed
    found=("${(@f)$(aiokclient __complete "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)}")
    found=(${found:#})
    if [[ $found[1] == :files ]]; then
        _files
        return
    fi
    open=(${(M)found:#*[:=]})
    closed=(${found:#*[:=]})
    (( $#open )) && compadd -Q -S '' -- $open
    (( $#closed )) && compadd -Q -- $closed
}
if [[ $funcstack[1] == _aiokclient ]]; then
    _aiokclient "$@"
else
    compdef _aiokclient aiokclient
fi
"""
FISH = r"""# Completion of aiokclient for fish: aiokclient completion fish | source
function __aiokclient_complete
    set -l found (aiokclient __complete (commandline -cp) 2>/dev/null)
    if test "$found[1]" = :files
        __fish_complete_path (commandline -ct)
    else if test (count $found) -gt 0
        printf '%s\n' $found
    end
end
complete -c aiokclient -f -a '(__aiokclient_complete)'
"""


class CompletionScript(Command):
    """The base of the commands that print a script."""

    connects = False
    prints_result = False
    script = ""

    def run(self, given: Namespace) -> int:
        """Print the script."""
        write_text(self.script)
        return 0


class BashCompletion(CompletionScript):
    """Print the completion script of bash.

    Write to ~/.bashrc: source <(aiokclient completion bash)

    It offers nouns, verbs, options, and, from the cluster of the profile, topics, groups, brokers,
    and configs. The cluster has 300 ms to answer; its names are used again for 60 seconds.
    """

    verb = "bash"
    script = BASH


class ZshCompletion(CompletionScript):
    """Print the completion script of zsh.

    Write to ~/.zshrc, after compinit: source <(aiokclient completion zsh)

    As a file, the script is named _aiokclient, in a folder
    of fpath.
    """

    verb = "zsh"
    script = ZSH


class FishCompletion(CompletionScript):
    """Print the completion script of fish, for ~/.config/fish/completions/aiokclient.fish."""

    verb = "fish"
    script = FISH


COMMANDS: Sequence[type[Command]] = (BashCompletion, ZshCompletion, FishCompletion)
