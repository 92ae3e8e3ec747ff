/* Every architecture against Hugging Face transformers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <string.h>

#include "reference_fixture.h"

static void check(const char *name)
{
    struct reference_fixture fixture;
    struct npu_error error = {0};
    struct verify_report report;
    if (reference_fixture_open(&fixture, name, &error) != NPU_OK)
        fail_msg("%s", error.message);
    assert_int_equal(reference_fixture_run(&fixture, false, &report, &error), NPU_OK);
    if (!(report.max_difference <= REFERENCE_MAX_DIFFERENCE) || report.n_agree != report.n_compared)
        fail_msg("%s: max|diff| %g, %d of %d choices agree", name, report.max_difference, report.n_agree,
                 report.n_compared);
    assert_int_equal(report.n_compared, 52); /* 21 of the prompt and 31 steps after it */
    verify_report_destroy(&report);
    /* K/V in half precision costs little more. */
    assert_int_equal(reference_fixture_run(&fixture, true, &report, &error), NPU_OK);
    if (!(report.max_peir <= 0.02) || report.n_agree + report.n_near_ties != report.n_compared)
        fail_msg("%s with half-precision K/V: PEIR %g, %d of %d choices agree, %d near ties", name, report.max_peir,
                 report.n_agree, report.n_compared, report.n_near_ties);
    verify_report_destroy(&report);
    reference_fixture_close(&fixture);
}

static void every_model_gives_the_logits_of_transformers(void **state)
{
    (void)state;
    DIR *directory = opendir(TEST_DATA_DIR "/reference");
    assert_non_null(directory);
    int n = 0;
    struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        char name[256];
        snprintf(name, sizeof name, "%s", entry->d_name);
        char *suffix = strstr(name, ".gguf");
        if (suffix == NULL)
            continue;
        *suffix = '\0';
        check(name);
        n++;
    }
    closedir(directory);
    assert_true(n >= 17);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_gives_the_logits_of_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
