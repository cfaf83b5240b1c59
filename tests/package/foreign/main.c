#include <stdio.h>

#include "forge_c.h"

int main(void) {
    printf("Forge, ABI %u\n", (unsigned)(forge_abi_version() >> 16));
    return forge_abi_version() >> 16 == FORGE_ABI_MAJOR ? 0 : 1;
}
