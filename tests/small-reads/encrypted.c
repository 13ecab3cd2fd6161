// SPDX-License-Identifier: GPL-2.0-only
/* If the disk can decrypt, an encrypted file allows O_DIRECT, by the ordinary path. */
#include <linux/fscrypt.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "small.h"

#define LENGTH	KIB(64)

static void encrypt(const char *directory)
{
	struct {
		struct fscrypt_add_key_arg arg;
		unsigned char raw[64];
	} key = {
		.arg = {
			.key_spec.type = FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER,
			.raw_size = sizeof(key.raw),
		},
	};
	struct fscrypt_policy_v2 policy = {
		.version = FSCRYPT_POLICY_V2,
		.contents_encryption_mode = FSCRYPT_MODE_AES_256_XTS,
		.filenames_encryption_mode = FSCRYPT_MODE_AES_256_CTS,
	};
	int fd;

	pattern_fill(key.raw, 0, sizeof(key.raw), 7);
	check(!mkdir(directory, 0700));
	fd = file_open(directory, O_RDONLY);
	if (ioctl(fd, FS_IOC_ADD_ENCRYPTION_KEY, &key)) {
		expect(errno, EOPNOTSUPP);
		close(fd);
		disk_unmount();
		skip("this kernel does not encrypt");
	}
	memcpy(policy.master_key_identifier, key.arg.key_spec.u.identifier,
	       sizeof(policy.master_key_identifier));
	check(!ioctl(fd, FS_IOC_SET_ENCRYPTION_POLICY, &policy));
	close(fd);
}

static void read_file(const char *path, enum path how, const void *content)
{
	int fd = file_open(path, O_RDONLY | O_DIRECT);

	read_all_ways(.fd = fd, .position = 4096, .length = 4096, .path = how,
		      .result = 4096, .content = content, .whole = true);
	close(fd);
}

int main(void)
{
	unsigned char *content = allocate(4096);

	hits();
	pattern_fill(content, 4096, 4096, 1);
	if (strcmp(test_fs(), "ext4"))
		skip("XFS does not encrypt");
	check(fs_format(raw_disk(), "ext4", "-O encrypt"));
	fs_mount(raw_disk(), "ext4", "inlinecrypt");
	encrypt("mnt/secret");
	file_pattern("mnt/secret/data", LENGTH, 1);
	file_pattern("mnt/open", LENGTH, 1);
	read_file("mnt/secret/data", LONG, content);
	read_file("mnt/open", SHORT, content);
	disk_unmount();
	return 0;
}
