# bash completion for dshctl: asks dshctl what may come next; see "dshctl completion --help".
_dshctl() {
    local line=${COMP_LINE:0:COMP_POINT} word help cut=""
    local partial=${line##*[[:space:]]}
    case $COMP_WORDBREAKS in
    *:*) [[ $partial == *[:=]* ]] && cut=${partial%"${partial##*[:=]}"} ;;
    esac
    COMPREPLY=()
    while IFS=$'\t' read -r word help; do
        case $word in
        //files) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "${partial##*=}") ;;
        //directories) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "${partial##*=}") ;;
        //nospace) compopt -o nospace ;;
        *) COMPREPLY+=("${word#"$cut"}") ;;
        esac
    done < <("$1" completion --line "$line" 2>/dev/null)
}
complete -F _dshctl dshctl
