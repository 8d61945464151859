# Most of BoringSSL's compile time is spent on the same headers in 280 files, and on their debug
# information, which it asks for at every level. Precompiled, the headers cost it once, and nobody
# debugs BoringSSL here. CMake reads this file as a toolchain file, the only kind that BoringSSL's
# build script passes on; it sets the flags that the build script then leaves out.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_FLAGS_INIT "-ffunction-sections -fdata-sections -w")
set(CMAKE_CXX_FLAGS_INIT "-ffunction-sections -fdata-sections -w")
set(CMAKE_PROJECT_INCLUDE "${CMAKE_CURRENT_LIST_FILE}")

function(sidekick_lighten target)
    if(TARGET ${target})
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-g0>)
        if(ARGN)
            target_precompile_headers(${target} PRIVATE <algorithm> <functional> <optional>
                <string> <utility> <vector> <assert.h> <limits.h> <stdlib.h> <string.h> ${ARGN})
        endif()
    endif()
endfunction()

# The second time, CMake includes this file in a project, whose targets follow.
if(PROJECT_NAME AND NOT CMAKE_VERSION VERSION_LESS 3.19)
    cmake_language(DEFER CALL sidekick_lighten fipsmodule)
    cmake_language(DEFER CALL sidekick_lighten crypto
        <openssl/asn1t.h> "${CMAKE_SOURCE_DIR}/crypto/x509/internal.h")
    cmake_language(DEFER CALL sidekick_lighten ssl "${CMAKE_SOURCE_DIR}/ssl/internal.h")
endif()
