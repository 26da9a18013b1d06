// SPDX-License-Identifier: GPL-2.0
#include <linux/module.h>

int hello_base_answer(void);

int hello_base_answer(void)
{
	return 42;
}
EXPORT_SYMBOL_GPL(hello_base_answer);

MODULE_DESCRIPTION("The module that the other one needs");
MODULE_LICENSE("GPL");
