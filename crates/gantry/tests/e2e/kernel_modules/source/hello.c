// SPDX-License-Identifier: GPL-2.0
#include <linux/module.h>

int hello_base_answer(void);

static char *greeting = "nothing";
module_param(greeting, charp, 0444);

static int __init hello_init(void)
{
	pr_info("hello: %s, %d\n", greeting, hello_base_answer());
	return 0;
}

static void __exit hello_exit(void)
{
	pr_info("hello: unloaded\n");
}

module_init(hello_init);
module_exit(hello_exit);
MODULE_DESCRIPTION("The module that nodes load");
MODULE_LICENSE("GPL");
