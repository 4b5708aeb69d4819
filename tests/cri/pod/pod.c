/* The only process of a sandbox: it sends its host name to each client of port 8080. */
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void)
{
	char name[65] = {0};
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(8080)};
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	if (gethostname(name, sizeof name - 2) != 0)
		return 1;
	strcat(name, "\n");
	if (bind(listener, (struct sockaddr *)&any, sizeof any) != 0 || listen(listener, 64) != 0)
		return 2;
	for (;;) {
		int peer = accept(listener, NULL, NULL);

		if (peer < 0)
			continue;
		if (send(peer, name, strlen(name), MSG_NOSIGNAL) < 0) {
			/* It has gone: the next one. */
		}
		close(peer);
	}
}
