/* net_script FILE...: runs packet scripts (tests/kit/script.h), reports in TAP. */
#include <stdio.h>

#include "tests/kit/eal.h"
#include "tests/kit/script.h"

int main(int argc, char **argv)
{
    bool all = argc > 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    kit_eal_init();
    printf("1..%d\n", argc - 1);
    for (int i = 1; i < argc; i++) {
        bool ok = script_run(argv[i], stdout);
        printf("%s %d - %s\n", ok ? "ok" : "not ok", i, argv[i]);
        all &= ok;
    }
    return all ? 0 : 1;
}
