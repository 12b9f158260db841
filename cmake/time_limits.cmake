# SPDX-License-Identifier: Apache-2.0
#
# The time limits of tests, by tests/seconds.json: what each takes on a busy machine; scripts/test_times.py writes it.
# And what scripts/test.sh builds: quick_tests, the programs of all tests but those that it leaves to .ci/run.
add_custom_target(quick_tests)
file(READ ${PROJECT_SOURCE_DIR}/tests/seconds.json WARPRANK_TEST_SECONDS)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/seconds.json)

# Gives each test of the calling directory five times what it takes, and a minute at least; 300 s where nobody has
# measured it or set another limit. Sanitizers are slower: those of addresses four times, of threads ten times. Those
# that take longest begin first, or one core would wait for them in the end. A test is quick unless it has the label wide
# or resources; a program by another name than its test's is given to quick_tests by hand.
function(set_time_limits)
  set(factor 5)
  if(CMAKE_CXX_FLAGS MATCHES "fsanitize=thread")
    set(factor 50)
  elseif(CMAKE_CXX_FLAGS MATCHES "fsanitize")
    set(factor 20)
  endif()
  get_property(names DIRECTORY PROPERTY TESTS)
  foreach(name IN LISTS names)
    string(JSON seconds ERROR_VARIABLE unknown GET "${WARPRANK_TEST_SECONDS}" ${name})
    get_test_property(${name} TIMEOUT limit)
    if(NOT unknown)
      math(EXPR limit "${factor} * ${seconds}")
      math(EXPR least "12 * ${factor}")
      if(limit LESS least)
        set(limit ${least})
      endif()
      set_tests_properties(${name} PROPERTIES TIMEOUT ${limit} COST ${seconds})
    elseif(NOT limit)
      set_tests_properties(${name} PROPERTIES TIMEOUT 300)
    endif()
    get_test_property(${name} LABELS labels)
    if(TARGET ${name} AND NOT labels MATCHES "(^|;)(wide|resources)($|;)")
      add_dependencies(quick_tests ${name})
    endif()
  endforeach()
endfunction()
