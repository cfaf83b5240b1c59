#include <stdio.h>

#include "forge_rt.h"

int main(int argc, char** argv) {
    forge_rt_package* package = NULL;
    if (forge_rt_open(argc > 1 ? argv[1] : "", NULL, &package) != FORGE_OK) {
        printf("%s: %s\n", forge_rt_build(), forge_rt_error());
        return argc > 1;
    }
    printf("%s: %s\n", forge_rt_build(), forge_rt_target(package));
    forge_rt_close(package);
    return 0;
}
