# fish completion for dshctl: asks dshctl what may come next; see "dshctl completion --help".
function __dshctl_complete
    set -l words (commandline -opc)
    for row in ($words[1] completion --line (commandline -cp) 2>/dev/null)
        switch $row
            case '//files*'
                __fish_complete_path (commandline -ct)
            case '//directories*'
                __fish_complete_directories (commandline -ct)
            case '//nospace*'
            case '*'
                echo $row
        end
    end
end
complete -c dshctl -f -a '(__dshctl_complete)'
