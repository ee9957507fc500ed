"""One module for each codec of `aiokclient.config.codecs`, imported when it is first used."""
