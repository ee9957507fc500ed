from aiokclient._native import choose_modules

choose_modules(__path__)
