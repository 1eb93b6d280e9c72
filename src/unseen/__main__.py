from unseen.cli.main import main

main()
