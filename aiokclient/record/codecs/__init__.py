"""One module for each codec of `aiokclient.codecs`, imported when it is first used."""
